#pragma once
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// Chooses the mesh on which a run goes on with `ranks` ranks instead of those it was planned for.
/// `o` holds the plan: its pp, cp and tp, its dp if that is given (else as many replicas as the
/// ranks allow), and its global batch, which never changes. By this rule:
///
/// 1. The work on a sample stays split into pp x cp x tp parts, or, with fewer ranks, into as many
///    as possible: a rank then holds as little more as can be. pp may be any number up to the
///    plan's, cp and tp divisors of the plan's. Of splits into equally many parts the one with the
///    larger tp is taken.
/// 2. dp is the largest that divides global batch / micro-batch, at most the plan's if it is given.
/// 3. A mesh that this model or another option refuses does not count: three smaller dp are tried,
///    then the next split.
///
/// Ranks may be left over. Without a global batch in `o` it is micro-batch x dp of the plan on
/// `ranks` ranks. Returns `o`, resolved, with that mesh. Throws Error 78 if there is none, saying
/// why the first choice is refused.
TrainOptions elastic_options(const Task& task, const TrainOptions& o, int64_t ranks);

}  // namespace triax::parallel
