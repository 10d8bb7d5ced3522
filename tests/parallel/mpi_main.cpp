// Run under mpirun by tests/parallel/CMakeLists.txt: every collective case, or one way to fail.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "tests/parallel/collective_cases.h"
#include "tests/parallel/promise_cases.h"
#include "triax/core/check.h"
#include "triax/parallel/comm/launch/world.h"

namespace triax::parallel {
namespace {

using namespace cases;

void all_cases(World& world) {
  for (const CollectiveCase& c : collective_cases()) {
    try {
      c.run(world.comm());
    } catch (const Error& e) {
      throw e.saying(c.name + ": " + e.what());
    }
    world.host().barrier();
  }
  if (world.rank() == 0)
    std::printf("%zu cases passed on %d ranks over %s, %d threads each\n",
                collective_cases().size(), world.size(), world.comm().transport(), world.threads());
}

void mismatch(World& world) {
  Tensor x = zeros({4096}, f32, cpu), y = zeros({8192}, f32, cpu);
  world.comm().all_reduce(x).wait();
  if (world.rank() == 1) world.comm().all_gather(x, zeros({world.size() * 4096}, f32, cpu)).wait();
  else world.comm().all_reduce(y).wait();
}

/// For scripts/campaign.sh.
void promises(World& world) {
  auto number = [](const char* variable, int64_t otherwise) {
    const char* text = std::getenv(variable);
    return text ? std::atoll(text) : otherwise;
  };
  std::string pairs = check_mismatches(world.comm());
  int64_t calls = number("TRIAX_CALLS", 10'000);
  double call = check_no_alarm(world.comm(), calls, uint64_t(number("TRIAX_SEED", 1)));
  double share = seconds_to_compare() * world.size() / call;
  check(share < 0.01, "comparing takes {:.2g} of the {:.2g} s of a small call", share, call);
  if (world.rank() == 0)
    std::puts(fmt::format("{}; {} calls without an alarm over {}, {:.2g} s each, of which "
                          "comparing takes {:.2g} %",
                          pairs, calls, world.comm().transport(), call, 100 * share)
                  .c_str());
}

void mismatched_message(World& world) {
  Tensor x = zeros({64}, f32, cpu);
  if (world.rank() == 0) world.comm().send(x, 1).wait();
  if (world.rank() == 1) world.comm().recv(x.narrow(0, 0, 32), 0).wait();
  world.comm().barrier();
}

void failing_rank(World& world) {
  if (world.rank() == 1) fail(Exit::data, "the error of rank 1");
  world.comm().all_reduce(zeros({4}, f32, cpu)).wait();
}

void common_error(World&) { fail(Exit::config, "the same on every rank\n  with a second line"); }

void missing_rank(World& world) {
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  world.comm().all_reduce(zeros({4}, f32, cpu)).wait();
}

/// The other ranks are stopped, longer than the time limit, while they wait for rank 1.
void suspended(World& world) {
  Tensor mine = full({1}, double(::getpid()), i64, cpu), all = zeros({world.size()}, i64, cpu);
  world.comm().all_gather(mine, all).wait();
  if (world.rank() == 1) {
    using std::this_thread::sleep_for;
    auto send = [&](int signal) {
      for (int64_t process : all.to_host<int64_t>())
        if (process != ::getpid()) ::kill(pid_t(process), signal);
    };
    sleep_for(std::chrono::milliseconds(200));
    send(SIGSTOP);
    sleep_for(std::chrono::milliseconds(1500));
    send(SIGCONT);
    sleep_for(std::chrono::milliseconds(100));
  }
  Tensor x = full({4}, 1, f32, cpu);
  world.comm().all_reduce(x).wait();
  check(x.to_host<float>()[0] == float(world.size()), "a wrong sum");
  if (world.rank() == 0) std::puts("went on");
}

void killed_rank(World& world) {
  if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
  world.comm().all_reduce(zeros({4}, f32, cpu)).wait();
}

void out_of_memory(World& world) {
  if (world.rank() == 1) throw std::bad_alloc();
  world.comm().barrier();
}

/// The system gives no more to rank 1.
void no_more_memory(World& world) {
  world.comm().barrier();
  rlimit none{.rlim_cur = 1, .rlim_max = 1};
  if (world.rank() == 1) ::setrlimit(RLIMIT_AS, &none), empty({1 << 26}, f32, cpu);
  world.comm().all_reduce(zeros({4}, f32, cpu)).wait();
}

/// An error with transfers of every kind in flight.
void unwinding(World& world) {
  Tensor x = zeros({100'000}, f32, cpu), y = world.comm().empty({100'000}, f32), z = clone(x);
  if (world.rank() == 1) {
    Work a = world.comm().all_reduce(x), b = world.comm().all_reduce(y),
         c = world.comm().recv(z, 0);
    fail(Exit::io, "while in flight");
  }
  world.host().barrier();
}

int run(int argc, char** argv) {
  const std::map<std::string, void (*)(World&)> modes{{"cases", all_cases},
                                                      {"mismatch", mismatch},
                                                      {"promises", promises},
                                                      {"mismatched_message", mismatched_message},
                                                      {"failing_rank", failing_rank},
                                                      {"common_error", common_error},
                                                      {"missing_rank", missing_rank},
                                                      {"suspended", suspended},
                                                      {"killed_rank", killed_rank},
                                                      {"out_of_memory", out_of_memory},
                                                      {"no_more_memory", no_more_memory},
                                                      {"unwinding", unwinding}};
  auto mode = modes.find(argc > 1 ? argv[1] : "");
  check_input(mode != modes.end(), Exit::usage, "test_mpi: which mode?");
  // test_mpi MODE [N]: tensors on GPU N.
  WorldOptions options;
  if (argc > 2) options.device = {Device::Kind::cuda, std::atoi(argv[2])};
  World world(argc, argv, options);
  mode->second(world);
  return 0;
}

}  // namespace
}  // namespace triax::parallel

int main(int argc, char** argv) {
  return triax::parallel::run_main(argc, argv, triax::parallel::run);
}
