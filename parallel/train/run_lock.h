#pragma once
#include <string>

namespace triax::parallel {

/// Who may write to a run directory: one running job at a time. The lock is the operating system's
/// (flock), so that a job that was killed holds none. Its file says who holds it.
class RunLock {
 public:
  /// Throws Error 78, with who holds it, if another job does; 73 if the file cannot be written.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace triax::parallel
