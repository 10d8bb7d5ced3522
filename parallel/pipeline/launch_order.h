#pragma once
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace triax::parallel {

/// Simulates the lists of all stages by NCCL's rules, with messages that wait for their receiver,
/// as those do that do not fit NCCL's buffers (between hosts 2 MiB of a link). Returns who waits
/// for whom if some stage never ends, else nothing. The lists must be complete and matched
/// (`check_schedule`).
///
/// The host calls ahead of its GPU: the receive of an action, the action, its send
/// (`Incoming::Ends::ahead` is false). A transfer starts when
///
/// * the actions called before it are done;
/// * the one before it on its channel is over: a communicator has one stream;
/// * the one called before it on this GPU, on whatever channel, has started: the rule of
///   NCCL_LAUNCH_ORDER_IMPLICIT, in ncclLaunchPrepare and ncclLaunchFinish of NCCL 2.28.9
///   (src/enqueue.cc), from 2.26 on.
///
/// It is over when both sides have started. An action begins when its receive is over. Collectives
/// inside of an action, as those of tensor parallelism, change nothing: they wait for the start of
/// what was called before them, but so does all that waits for the action.
std::string hang_over_nccl(const std::vector<Actions>& lists, const PipelineShape& shape);

/// Throws Error 78 if `schedule`, which `check_schedule` has found right, hangs over NCCL. It names
/// the next larger number of micro-batches that does not hang.
void check_over_nccl(const Schedule& schedule, const PipelineShape& shape);

}  // namespace triax::parallel
