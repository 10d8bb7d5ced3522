#pragma once
#include <optional>
#include <string>

#include "parallel/pipeline/timeline.h"
#include "parallel/program/report/trace.h"

namespace triax::parallel::report {

/// The share of its time that the stage which waits longest does not work.
double bubble(const MeasuredPipeline& measured);
double bubble(const Timeline& simulated);

/// Both, one below the other on one axis of time, as an SVG element. Of many stages the first 16.
std::string svg_of(const MeasuredPipeline& measured, const std::optional<Timeline>& simulated);

}  // namespace triax::parallel::report
