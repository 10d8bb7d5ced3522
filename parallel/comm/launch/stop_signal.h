#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "triax/core/scoped.h"

namespace triax::parallel {

/// While it lives, SIGTERM, SIGINT, SIGHUP and SIGUSR1 ask the run to stop after its step, with a
/// checkpoint: they set a flag and nothing else. A second SIGINT ends the process at once. A SIGHUP
/// that was ignored, as under nohup, stays ignored. Afterwards the defaults are back, except in a
/// rank that a launcher started and that has stopped (set_stopped): there they are ignored. One at
/// a time.
class StopSignal : Immovable {
 public:
  StopSignal();
  /// Handles these signals alone; others keep their handlers.
  explicit StopSignal(std::vector<int> signals);
  ~StopSignal();
  /// True if one came to this process. From any thread.
  static bool seen();
  /// Records that the run has stopped because a signal came, to this rank or to another: what
  /// counts now is the exit code of the process.
  static void set_stopped();

  static constexpr size_t max_farewell = 1023;  ///< bytes; what is longer is cut
  /// Sets the text that a second SIGINT writes to stderr before it ends the process, such as the
  /// newest checkpoint. Empty: nothing. Called by the one rank that speaks for all.
  static void set_farewell(const std::string& text);

 private:
  std::vector<int> signals_;
};

}  // namespace triax::parallel
