#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace triax::parallel {

/// What this environment variable sets, in seconds; ten minutes if it is not there. Throws Error 78
/// if it is no number above 0.
double seconds_from(const char* variable);

/// Put around a call into MPI that waits for other ranks and cannot be interrupted: if it lives
/// longer than `seconds` in which it was not suspended, this process ends with a report and code
/// 72, and the launcher ends the others. `what`, for the report, says what the ranks were to do
/// together.
class Deadline {
 public:
  Deadline(std::string what, double seconds);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// How long all ranks may take to find each other: TRIAX_START_TIMEOUT.
  static double of_start() { return seconds_from("TRIAX_START_TIMEOUT"); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread watch_;
};

}  // namespace triax::parallel
