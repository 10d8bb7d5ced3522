#pragma once

namespace triax::parallel {

/// While it lives, SIGTERM, SIGINT and SIGUSR1 ask the run to stop after its step, with a
/// checkpoint. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Has one come, to this process?
  static bool seen();
};

}  // namespace triax::parallel
