#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

// The waiting of ranks for each other.
namespace triax::parallel {

/// Counts the seconds in which a rank waited and its process ran. A job that was suspended (Ctrl-Z,
/// a scheduler) must not find its peers late when it goes on, so the time between two looks counts
/// up to a quarter of a second only.
class WaitClock {
 public:
  /// The longest time between two looks of a rank that waits.
  static constexpr std::chrono::duration<double> between_looks{0.05};

  /// Returns the seconds since the clock was made; counts as a look.
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

/// The wait of a rank for another process: it spins briefly while every rank has a core of its own,
/// then lets others run, then sleeps. It never burns a core for long.
class Backoff {
 public:
  Backoff(bool crowded, double time_limit);
  /// Pauses. False when the time limit has passed; time of a suspended process does not count.
  bool pause();

 private:
  WaitClock waited_;
  double time_limit_;
  int64_t count_;
  int spins_;
};

/// Returns the seconds that an environment variable sets; ten minutes if it is not set. Throws
/// Error 78 if it is no number above 0.
double seconds_from(const char* variable);

/// Guards a call into MPI that waits for other ranks and cannot be interrupted: if it lives longer
/// than `seconds` in which it was not suspended, this process ends with a report and code 72, and
/// the launcher ends the others. `what`, for the report, says what the ranks were to do together.
class Deadline {
 public:
  Deadline(std::string what, double seconds);
  /// Returns the time in which all ranks have to find each other: TRIAX_START_TIMEOUT.
  static double of_start() { return seconds_from("TRIAX_START_TIMEOUT"); }

 private:
  std::jthread watch_;
};

}  // namespace triax::parallel
