#pragma once
#include <string>

#include "parallel/program/report/runs.h"

namespace triax::parallel::report {

/// The part of a page about the trace of a run, which has one: how each rank spent its time, and
/// the pipeline as it was measured and as it is simulated.
std::string profile_section(const RunFacts& run);

}  // namespace triax::parallel::report
