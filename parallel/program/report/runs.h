#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/program/report/series.h"
#include "parallel/program/report/trace.h"

namespace triax::parallel::report {

/// What the files of a run directory say of a run.
struct RunFacts {
  std::string path;
  std::string name;     ///< the last part of the path; all of it where runs share that
  std::string metrics;  ///< the file that was read
  std::string unit;     ///< what is counted: `tokens`
  std::map<std::string, Points> columns;        ///< numbers of the metrics by key; null is NaN
  Points skipped;                               ///< the steps that were skipped; their loss scale
  std::vector<std::string> overflows;           ///< of the first of them: `step 12: the loss`
  std::map<std::string, std::string> settings;  ///< literals, without quotes
  std::string host;                ///< of the last job: `process 12 on node3 since ...`
  std::vector<std::string> notes;  ///< what was left out, and why
  std::optional<Trace> trace;      ///< of --profile

  /// Empty if there is no such column.
  const Points& column(const std::string& key) const;
  /// `?` if it is not known.
  std::string setting(const std::string& key) const;
};

/// The setting of a program's run that says what a rank holds, as it was foreseen.
inline constexpr const char* foreseen_memory = "memory foreseen";

/// A setting as a number; 0 if it is none, or not known.
double number_of(const RunFacts& run, const std::string& key);

/// The file of a run's metrics: the run says where it wrote them; a directory that was moved or
/// copied has its own. Empty if there is none.
std::string metrics_of(const std::string& run);

/// Reads and changes nothing. A last line of the metrics that is cut, as by `kill -9`, is left out.
/// Throws Error 66 if there is no such run, or it has no step yet, 65 if it is no run directory or
/// a file in it is damaged, naming file and line.
RunFacts read_run(const std::string& path);
/// The same without the trace.
RunFacts read_steps(const std::string& path);

/// All of them, with names that differ. Throws Error 64 for a run that is given twice and for more
/// than 16, which no colors tell apart, 65 for runs that count different things.
std::vector<RunFacts> read_runs(const std::vector<std::string>& paths);

}  // namespace triax::parallel::report
