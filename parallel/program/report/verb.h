#pragma once
#include <string>
#include <vector>

#include "parallel/settings/command_line.h"

namespace triax::parallel {

/// What `report` is told.
struct ReportOptions {
  std::vector<std::string> runs;
  std::string out = "report.html";
  std::string hardware;  ///< that MFU is a share of; empty: none is told
};
Verb report_verb(ReportOptions& o);

/// Writes one page about all runs. Run directories are read and not changed; they may be in use.
/// Throws Error 65, 66 as report::read_runs, 73 if the page cannot be written, 78 if the file is
/// there and no page that this verb wrote.
Exit make_report(const ReportOptions& o);

}  // namespace triax::parallel
