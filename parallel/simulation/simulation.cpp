#include "triax/parallel/simulation/simulation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <thread>

#include "triax/core/check.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/train/watch/chrome_trace.h"

namespace triax::parallel {
namespace {

class ClockOfProfile final : public ProfileClock {
 public:
  explicit ClockOfProfile(VirtualClock& clock) : clock_(clock) {}
  int64_t mark() override { return int64_t(clock_.now() * 1e9); }
  int64_t time(int64_t mark) override { return mark; }

 private:
  VirtualClock& clock_;
};

SimulatedRank run(const Subject& subject, const SimulationOptions& o, Communicator& world,
                  VirtualClock& clock) {
  const StepOptions& step = o.train.step;
  int rank = world.rank();
  MetaTarget target(o.hardware.kind());
  Profile recorded(std::make_unique<ClockOfProfile>(clock));
  bool traced = o.trace && step.mesh.first_rank("pp", step.mesh.place(rank, {"pp"})) == rank;
  SimulatedRank r;
  double begin = 0;
  std::map<std::string, double> before;
  auto start = [&](Step& s, const StepInput& input) {
    if (step.zero == Zero::optimizer || step.zero == Zero::gradients) s.take(input);
    begin = clock.now(), before = clock.waits();
    if (traced) set_profile(&recorded), recorded.open("step", Activity::work);
  };
  auto stop = [&] {
    r.seconds = clock.now() - begin, r.waits = clock.waits();
    for (auto& [kind, waited] : before) r.waits[kind] -= waited;
    if (traced) recorded.close("step 1"), set_profile(nullptr);
  };
  r.demand = rehearse(subject, step, world, {start, stop});
  if (!traced) return r;
  recorded.settle();
  r.events =
      trace_events(recorded, {rank, fmt::format("rank {} ({})", rank, place_of(step.mesh, rank))});
  return r;
}

/// The mean and the largest of a figure over the ranks of a stage.
struct Spread {
  double sum = 0, most = 0, count = 0;
  void add(double x) { sum += x, most = std::max(most, x), ++count; }
  std::string text() const { return fmt::format("{:.3f} ({:.3f})", sum / count, most); }
};

}  // namespace

double SimulatedRank::waited() const {
  double sum = 0;
  for (auto& [kind, waited] : waits) sum += waited;
  return sum;
}

std::vector<SimulatedRank> simulate(const Task& task, const SimulationOptions& o) {
  const StepOptions& step = o.train.step;
  check_task(task);
  nn::Batch like = shaped_like(task, step.micro_batch);
  Subject subject = subject_of(task.build, like, step);
  int ranks = step.mesh.size();
  std::vector<SimulatedRank> all(static_cast<size_t>(ranks));
  VirtualLinks links(ranks, int(std::max(1u, std::thread::hardware_concurrency())));
  auto rank_of = [&](std::unique_ptr<Communicator> threads) {
    int rank = threads->rank();
    VirtualClock clock(o.hardware, step.dtype, Injected::of(rank, o.injected.slow_ranks, 1));
    links.take_turn();
    try {
      VirtualComm world(std::move(threads), {clock, links, o.injected});
      all[size_t(rank)] = run(subject, o, world, clock);
      world.check_usable();
    } catch (...) {
      links.leave(std::current_exception());
      throw;
    }
    links.leave();
  };
  // Ranks that wait for their turn are not late.
  run_thread_ranks(ranks, rank_of, {.time_limit = std::numeric_limits<double>::infinity()});
  return all;
}

double step_seconds(const std::vector<SimulatedRank>& ranks) {
  return std::ranges::max(ranks, {}, &SimulatedRank::seconds).seconds;
}

std::string stage_table(const std::vector<SimulatedRank>& ranks, const MeshShape& mesh) {
  std::set<std::string> waits;
  for (auto& r : ranks)
    for (auto& [kind, waited] : r.waits) waits.insert(kind);
  std::vector<std::string> kinds{"kernels"};
  kinds.insert(kinds.end(), waits.begin(), waits.end());
  std::vector<std::map<std::string, Spread>> stages(static_cast<size_t>(mesh.pp));
  std::vector<int64_t> memory(static_cast<size_t>(mesh.pp));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    auto s = size_t(mesh.place(rank, {"pp"}));
    SimulatedRank r = ranks[size_t(rank)];
    r.waits["kernels"] = r.seconds - r.waited();
    for (auto& kind : kinds) stages[s][kind].add(r.waits[kind]);
    memory[s] = std::max(memory[s], r.demand.peak);
  }
  std::string text = "stage";
  for (auto& kind : kinds) text += fmt::format("  {:>17}", kind);
  text += fmt::format("  {:>9}\n", "memory");
  for (size_t s = 0; s < stages.size(); ++s) {
    text += fmt::format("{:>5}", s);
    for (auto& kind : kinds) text += fmt::format("  {:>17}", stages[s][kind].text());
    text += fmt::format("  {:>9}\n", show_bytes(double(memory[s])));
  }
  return text;
}

std::string trace_of(const std::vector<SimulatedRank>& ranks, const StepOptions& o) {
  TraceHead head{1, 1, o.schedule, o.pipeline().placement, {}};
  std::vector<std::string> events;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const SimulatedRank& r = ranks[rank];
    if (r.events.empty()) continue;
    head.ranks.push_back(traced_rank(o.mesh, int(rank), {r.seconds - r.waited(), 0, r.waited()}));
    events.push_back(r.events);
  }
  return trace_text(head, events);
}

}  // namespace triax::parallel
