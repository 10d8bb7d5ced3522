#pragma once
#include <string>

#include "parallel/settings/command_line.h"
#include "parallel/train/options.h"

namespace triax::parallel {

/// What `calibrate` can be told.
struct CalibrateOptions {
  LaunchOptions launch;
  std::string out;  ///< empty: stdout
};
Verb calibrate_verb(CalibrateOptions& o, const std::string& program);

/// Measures and writes. Throws Error 73, before it measures, for a file that is there or cannot be
/// made.
void run_calibrate(const CalibrateOptions& o, int argc, char** argv);

}  // namespace triax::parallel
