#pragma once
#include <string>
#include <vector>

#include "triax/parallel/pipeline/simulate.h"

namespace triax::parallel {

/// The timeline of all stages of a pipeline: a checked schedule, and its simulation.
struct Timeline {
  std::string name;  ///< of the schedule
  PipelineShape shape;
  Simulation simulation;
  std::vector<int> peak_live;       ///< per stage, as check_schedule() returns it
  std::vector<Handover> handovers;  ///< in the order of the actions that send them
  double bubble() const;            ///< idle time of the stage that is idle longest
};

/// Makes the timeline of any schedule; `name` is its title. Without `times` stages are equal, and
/// each pass through one takes 1. Throws Error 78 as `check_schedule`.
Timeline make_timeline(const std::string& name, const Schedule& schedule,
                       const PipelineShape& shape, const StageTimes& times = {});

/// Returns text for a terminal: a row per stage, in which `F3b` is the forward of micro-batch 3
/// through chunk b. Rows longer than `columns` are continued in further blocks of rows. The
/// shortest action takes one cell.
std::string timeline_text(const Timeline& timeline, int columns = 100);

/// Returns a JSON object: the fields of Timeline, `time`, `bubble`, `idle`. Each of `actions` has
/// `stage`, `kind` (`name(Action::Kind)`), `chunk`, `micro`, `begin`, `end`; each of `handovers`
/// has `kind` (`activation`, `gradient`), `micro` and the virtual stages `from` and `to`.
std::string timeline_json(const Timeline& timeline);

}  // namespace triax::parallel
