#pragma once
#include <exception>
#include <string>

namespace triax::parallel {

/// The exit code of an exception: Error::code, 71 out of memory, 70 others.
int exit_code(const std::exception& e);

/// The report: `triax: error 78: ...`, at most 12 lines.
std::string failure_report(const std::exception& e);

/// Reports a failure of this rank (after time for ranks before it to have done so, unless the
/// launcher picks the first report: TRIAX_ONE_REPORT).
void report_failure(const std::exception& e, int rank);

/// scripts/launch.sh sets TRIAX_ONE_REPORT: of all reports that it gets it shows the first.
bool every_rank_may_speak();

}  // namespace triax::parallel
