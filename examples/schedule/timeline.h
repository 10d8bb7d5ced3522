#pragma once
#include <string>
#include <vector>

#include "parallel/pipeline/simulate.h"

namespace triax::schedule {

/// What every stage does when. The forward of a micro-batch through a stage, all its chunks, takes
/// 1, and so does each half of its backward.
struct Timeline {
  std::string name;
  parallel::PipelineShape shape;
  parallel::Simulation simulation;
  std::vector<int> peak_live;  ///< activations per stage

  /// Idle time of a stage, the same for all.
  double bubble() const { return simulation.idle.front(); }
};

/// Of the schedule of that name, checked. Throws Error 78 as `schedule_named` and the schedule do.
Timeline make_timeline(const std::string& name, const parallel::PipelineShape& shape);

/// A line per stage. `F3b` is the forward of micro-batch 3 through chunk b.
std::string as_text(const Timeline& timeline);

/// A file in SVG. All are drawn to one scale, so that they can be laid side by side.
std::string as_svg(const Timeline& timeline);

}  // namespace triax::schedule
