#pragma once
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "nn/state.h"
#include "parallel/parity/digests.h"
#include "parallel/train/options.h"
#include "parallel/train/step.h"
#include "parallel/train/task.h"

namespace triax::parallel {

/// Which step of which rank is looked at.
struct ReplayPoint {
  std::string checkpoint;  ///< of a step before; its directory is only read
  int64_t step = 1;
  int rank = 0;
  std::string tensor;  ///< whose value is kept; empty: none
  std::string later;   ///< a checkpoint of that step, to compare weights with; empty: none
};

/// What came of it.
struct Replay {
  std::vector<StepResult> steps;  ///< all after the checkpoint; without the last if it diverged
  /// Of the rank: outputs of its layers `block0/output/2` (micro-batch 2, bitwise sample 2),
  /// gradients `block0.up.weight/gradient` (summed over all ranks, times the loss scale), `loss`
  /// and `grad_norm` (unless the step diverged), then weights, buffers and optimizer state
  /// `block0.up.weight/m` after the step.
  DigestTable table;
  std::optional<nn::NamedTensor> value;  ///< ReplayPoint::tensor
  std::string part;                      ///< of what it is; empty for an activation
  int64_t compared = 0;                  ///< tensors that the later checkpoint was read for
  std::string differs;                   ///< the first of them whose bits differ; empty: none
  std::exception_ptr diverged;           ///< Error 77 of the last step
};

/// Trains `task` from a checkpoint up to a step, on the mesh of `o`, whose ranks are threads of
/// this process, as the run of that checkpoint did. Throws Error 78 for a step, rank or tensor that
/// is not there, and what resuming throws.
Replay replay(const Task& task, TrainOptions o, const ReplayPoint& point);

}  // namespace triax::parallel
