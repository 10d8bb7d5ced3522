#pragma once
#include <algorithm>
#include <chrono>

namespace triax::parallel {

/// Seconds in which a rank waited and its process ran. A job that was suspended (Ctrl-Z, a
/// scheduler) must not find its peers late when it goes on, so the time between two looks counts
/// up to a quarter of a second only.
class WaitClock {
 public:
  /// Who waits looks at least this often.
  static constexpr std::chrono::duration<double> between_looks{0.05};

  /// Since the clock was made; a look.
  double seconds() {
    auto now = Clock::now();
    counted_ += std::min(now - last_, most);
    last_ = now;
    return std::chrono::duration<double>(counted_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration most = std::chrono::milliseconds(250);
  Clock::time_point last_ = Clock::now();
  Clock::duration counted_{};
};

}  // namespace triax::parallel
