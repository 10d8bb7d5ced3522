#pragma once
#include <cstdint>

#include "parallel/comm/wait_clock.h"

namespace triax::parallel {

/// How a rank waits for another process: spin a little while every rank has a core of its own,
/// then let others run, then sleep. Never burns a core for long.
class Backoff {
 public:
  Backoff(bool crowded, double time_limit);
  /// False when the time limit has passed; time in which the process was suspended does not count.
  bool pause();

 private:
  WaitClock waited_;
  double time_limit_;
  int64_t count_;
  int spins_;
};

}  // namespace triax::parallel
