#include "triax/parallel/comm/clocks.h"

#include <fstream>
#include <limits>

#include "triax/core/profile.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {
namespace {

constexpr int questions = 16;

/// Sends rank 0's time to `rank`, as often as it asks.
void answer(Communicator& ranks, int rank, const HostClock& mine) {
  for (int i = 0; i < questions; ++i) {
    Tensor question = zeros({1}, i64, cpu);
    ranks.recv(question, rank).wait();
    ranks.send(from_host(std::vector<int64_t>{mine.now()}, {1}, cpu), rank).wait();
  }
}

int64_t ask(Communicator& ranks, const HostClock& mine) {
  int64_t shortest = std::numeric_limits<int64_t>::max(), offset = 0;
  for (int i = 0; i < questions; ++i) {
    Tensor time = zeros({1}, i64, cpu);
    int64_t asked = mine.now();
    ranks.send(time, 0).wait();
    ranks.recv(time, 0).wait();
    int64_t took = mine.now() - asked;
    if (took >= shortest) continue;
    shortest = took;
    offset = time.to_host<int64_t>()[0] - (asked + took / 2);
  }
  return offset;
}

}  // namespace

HostClock host_clock() {
  std::string host;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  return {.host = std::getline(boot, host) ? host : host_name(), .now = Profile::now};
}

int64_t clock_offset(Communicator& ranks, const HostClock& mine) {
  bool apart = broadcast_text(ranks, mine.host) != mine.host;
  auto all = gather_text(ranks, apart ? "apart" : "");  // on rank 0
  for (int r = 1; r < int(all.size()); ++r)
    if (!all[size_t(r)].empty()) answer(ranks, r, mine);
  int64_t offset = apart ? ask(ranks, mine) : 0;
  ranks.barrier();
  return offset;
}

}  // namespace triax::parallel
