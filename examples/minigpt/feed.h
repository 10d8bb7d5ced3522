#pragma once
#include "examples/minigpt/config.h"
#include "examples/minigpt/text_data.h"
#include "parallel/comm/communicator.h"
#include "parallel/data/sampler.h"

namespace triax::minigpt {

/// What a replica trains on. The samples of a step are cut over micro-batches, then replicas: which
/// they are depends on the step alone, not on the mesh.
class Feed {
 public:
  /// `c` is resolved and validated; all three must outlive it.
  Feed(const TrainConfig& c, const TextData& text, const parallel::Communicator& dp);

  /// Micro-batch `micro`, from 0, of this replica in `step`, from 1.
  nn::Batch at(int64_t step, int64_t micro) const;

 private:
  const TrainConfig& config_;
  const TextData& text_;
  const parallel::Communicator& dp_;
  parallel::Sampler order_;
};

}  // namespace triax::minigpt
