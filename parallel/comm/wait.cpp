#include "triax/parallel/comm/wait.h"

#include <sched.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "triax/core/check.h"
#include "triax/parallel/comm/process.h"

namespace triax::parallel {
namespace {

constexpr int spins = 2000, yields = 1000;

}  // namespace

// With more ranks than cores it does not spin, which would keep a peer from running.
Backoff::Backoff(bool crowded, double time_limit)
    : time_limit_(time_limit), count_(0), spins_(crowded ? 0 : spins) {}

bool Backoff::pause() {
  ++count_;
  if (count_ <= spins_) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return true;
  }
  if (count_ <= spins_ + yields) sched_yield();
  else std::this_thread::sleep_for(std::chrono::microseconds(50));
  return count_ % 64 != 0 || waited_.seconds() < time_limit_;
}

double seconds_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return 600;
  char* end = nullptr;
  double seconds = std::strtod(text, &end);
  check_input(end != text && *end == 0 && seconds > 0, Exit::config,
              "{}: '{}'; expected a number of seconds above 0", variable, text);
  return std::min(seconds, 1e9);  // a clock counts nanoseconds in 64 bits
}

Deadline::Deadline(std::string what, double seconds)
    : watch_([what = std::move(what), seconds](const std::stop_token& over) {
        std::mutex mutex;
        std::condition_variable_any changed;  // by `over`
        std::unique_lock lock(mutex);
        for (WaitClock waited; waited.seconds() < seconds;) {
          changed.wait_for(lock, over, WaitClock::between_looks, [] { return false; });
          if (over.stop_requested()) return;
        }
        Error late(Exit::peer_lost,
                   fmt::format("{}: not all ranks came within {} s\n"
                               "  One has ended early, hangs, or is on a host that cannot be "
                               "reached.\n"
                               "  TRIAX_START_TIMEOUT and TRIAX_TIMEOUT (seconds) set the limits "
                               "at the start and later.",
                               what, seconds));
        report_failure(late, announced_by_launcher().rank);
        std::_Exit(exit_code(late));
      }) {}

}  // namespace triax::parallel
