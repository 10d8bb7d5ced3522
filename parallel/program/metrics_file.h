#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace triax::parallel {

/// The metrics of a run's steps (docs/runs.md).
struct MetricsFile {
  struct Step {
    double loss, grad_norm, lr;  ///< NaN where they were not finite
  };
  std::string path;               ///< empty: there is none
  std::map<int64_t, Step> steps;  ///< by number
};

/// Reads the metrics of the run in a directory: the run says where it wrote them; a directory that
/// was moved or copied has its own. Leaves out a last line that is cut, as by `kill -9`. Throws
/// Error 65 for another line that is damaged, naming it.
MetricsFile read_metrics(const std::string& run);

}  // namespace triax::parallel
