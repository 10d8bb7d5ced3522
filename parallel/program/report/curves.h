#pragma once
#include <string>
#include <vector>

#include "parallel/program/report/runs.h"

namespace triax::parallel::report {

/// Charts of what the metrics of the runs have, in HTML: at most about 1 MB, whatever the number of
/// steps.
std::string curves(const std::vector<RunFacts>& runs);

}  // namespace triax::parallel::report
