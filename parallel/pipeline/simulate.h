#pragma once
#include <string>
#include <vector>

#include "triax/parallel/pipeline/schedule.h"

namespace triax::parallel {

/// Durations of the passes, in any unit. A whole backward takes the sum of its halves.
struct Durations {
  double forward = 1, backward_input = 1, backward_weight = 1;  ///< of one chunk
  double latency = 0;  ///< from the moment both ends are ready to the arrival
  double copy = 0;     ///< of what a forward has kept, to host memory or back
};

/// Durations of every virtual stage, in order. `latency`: of its exchange with the next one.
using StageTimes = std::vector<Durations>;

/// Returns times of equal stages; a micro-batch takes `per_stage` through a whole stage.
StageTimes equal_stages(const PipelineShape& shape, const Durations& per_stage);

/// An offload or a reload takes the time of its copy.
struct TimedAction {
  int stage = 0;
  Action action;
  double begin = 0, end = 0;
};

/// A wait that never ends.
struct Wait {
  int stage = 0;
  int position = 0;   ///< in its list; the length of the list: it waits for the end of its sends
  Handover handover;  ///< the one that does not take place
  int on = 0;         ///< the stage at the other end
};

struct Simulation {
  std::vector<TimedAction> actions;  ///< those that ran, stage by stage, in the order of its list
  double time = 0;                   ///< the end of the last of them
  std::vector<double> idle;          ///< per stage: `time` less the durations of its passes
  std::vector<Wait> waits;           ///< by stage; empty unless there is a deadlock
  bool deadlock() const { return !waits.empty(); }
};

/// Simulates the lists of all stages, as the pipeline would run them over a transport that buffers
/// nothing: a stage does one action at a time; a receive is posted when the one before it on its
/// channel has been taken, the first of each at the start, and waited for with its action; a send
/// starts when its action ends and is waited for after the list; it takes place only together with
/// its receive. Sends of one link and direction take place in the order in which they start. A copy
/// to host memory begins when its forward has ended and those before it are done, and `offload`
/// waits for its end; one back begins with `reload`, and its backward waits for it. The lists may
/// be wrong in any way, but for chunks and micro-batches that do not exist.
Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const Durations& durations = {});
/// Simulates with a time for each virtual stage. Throws unless there is one for each.
Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const StageTimes& times);

/// Returns the circle of waits: `stage 0, position 3 (forward of ...) waits for ...`. Empty without
/// a deadlock.
std::string describe_deadlock(const Simulation& simulation, const std::vector<Actions>& lists);

}  // namespace triax::parallel
