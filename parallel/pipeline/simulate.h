#pragma once
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace triax::parallel {

/// How long things take, in any unit. A whole backward takes the sum of its halves.
struct Durations {
  double forward = 1, backward_input = 1, backward_weight = 1;  ///< of one chunk
  double latency = 0;  ///< from the moment both ends are ready to the arrival
};

/// Of every virtual stage, in order. `latency` is that of what it exchanges with the next one.
using StageTimes = std::vector<Durations>;

/// Equal stages, through the whole of which a micro-batch takes `per_stage`.
StageTimes equal_stages(const PipelineShape& shape, const Durations& per_stage);

/// What actions took that ran: each has a time of its own.
struct ActionTimes {
  std::vector<std::vector<double>> actions;  ///< by stage, in the order of its list
  std::vector<double> latencies;             ///< of every virtual stage to the next
};

struct TimedAction {
  int stage = 0;
  Action action;
  double begin = 0, end = 0;
};

/// A stage that waits forever.
struct Wait {
  int stage = 0;
  int position = 0;   ///< in its list; the length of the list: it waits for the end of its sends
  Handover handover;  ///< that does not take place
  int on = 0;         ///< the stage at the other end
};

struct Simulation {
  std::vector<TimedAction> actions;  ///< that ran, stage by stage, in order
  double time = 0;                   ///< when the last of them ended
  std::vector<double> idle;          ///< per stage: `time` less what its actions took
  std::vector<Wait> waits;           ///< by stage; empty unless there is a deadlock
  bool deadlock() const { return !waits.empty(); }
};

/// Runs the lists of all stages without running anything, as the pipeline would over a transport
/// that buffers nothing: a stage does one action at a time; a receive is posted when the one before
/// it on its channel has been taken, the first of each at the start, and waited for with its
/// action; a send starts when its action ends and is waited for after the list; it takes place only
/// together with its receive. Sends of one link and direction take place in the order in which they
/// start. The lists may be wrong in any way, but for chunks and micro-batches that do not exist.
Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const Durations& durations = {});
/// The same with times of their own. Throws unless there are some for each virtual stage.
Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const StageTimes& times);
/// The same with times of every action. Throws unless each has one.
Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const ActionTimes& times);

/// Who waits for whom, round the circle: `stage 0, position 3 (forward of ...) waits for ...`.
/// Empty without a deadlock.
std::string describe_deadlock(const Simulation& simulation, const std::vector<Actions>& lists);

}  // namespace triax::parallel
