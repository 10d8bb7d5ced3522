#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/program/report/runs.h"

namespace triax::parallel::report {

struct PageOptions {
  const Hardware* hardware = nullptr;  ///< whose peak the ranks are compared with; null: none
};

/// A page in HTML that needs nothing but itself: what there is to see of these runs, one color for
/// each.
std::string page_of(const std::vector<RunFacts>& runs, const PageOptions& o);

}  // namespace triax::parallel::report
