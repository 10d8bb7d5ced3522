#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/program/report/runs.h"

namespace triax::parallel::report {

/// What is to be known of each run in a few words, as a table. `hardware`: whose peak the ranks are
/// compared with; null: none.
std::string overview(const std::vector<RunFacts>& runs, const Hardware* hardware);

}  // namespace triax::parallel::report
