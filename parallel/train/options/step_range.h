#pragma once
#include <cstdint>
#include <string>

#include "parallel/train/options/options.h"

namespace triax::parallel {

/// The steps that --profile names.
struct StepRange {
  int64_t first = 0, last = 0;
};
/// Reads `3-5`, or `3`. Throws Error 78.
StepRange parse_step_range(const std::string& text);

/// Throws Error 78 if the run has no such steps, or its device no profile.
void check_profile(const TrainOptions& o);

}  // namespace triax::parallel
