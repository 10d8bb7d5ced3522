#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace triax::parallel {

/// What the metrics of a run say of a step; null is NaN.
struct RecordedStep {
  double loss = 0, grad_norm = 0;
};

/// The file of a run's metrics: the run says where it wrote them; a directory that was moved or
/// copied has its own. Empty if there is none.
std::string metrics_of(const std::string& run);

/// The whole lines of a file of metrics that have a norm, by step. Throws Error 65 naming the line
/// that is damaged.
std::map<int64_t, RecordedStep> recorded_steps(const std::string& metrics);

}  // namespace triax::parallel
