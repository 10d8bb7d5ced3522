#pragma once
#include <string>

#include "parallel/program/report/runs.h"
#include "parallel/train/options.h"

namespace triax::parallel::report {

/// The part of a page about the trace of a run, which has one: how each rank spent its time, and
/// the pipeline as it was measured and as its schedule is simulated.
std::string profile_section(const RunFacts& run, const Schedules& schedules);

}  // namespace triax::parallel::report
