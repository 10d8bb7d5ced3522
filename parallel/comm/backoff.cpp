#include "parallel/comm/backoff.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace triax::parallel {
namespace {

constexpr int spins = 2000, yields = 1000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// A spinning rank keeps the one it waits for from running when there are more ranks than cores.
Backoff::Backoff(bool crowded, double time_limit)
    : time_limit_(time_limit), count_(0), spins_(crowded ? 0 : spins) {}

bool Backoff::pause() {
  ++count_;
  if (count_ <= spins_) {
    relax();
    return true;
  }
  if (count_ <= spins_ + yields) sched_yield();
  else std::this_thread::sleep_for(std::chrono::microseconds(50));
  return count_ % 64 != 0 || waited_.seconds() < time_limit_;
}

}  // namespace triax::parallel
