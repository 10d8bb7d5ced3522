#pragma once
#include <string>
#include <vector>

#include "examples/minigpt/config.h"
#include "examples/minigpt/model.h"
#include "parallel/data/data_parallel.h"
#include "parallel/pipeline/pipeline.h"

namespace triax::minigpt {

/// Sees what each layer returned, as this rank has it.
using Observer =
    std::function<void(const std::string& layer, const Tensor& y, const nn::Batch& batch)>;

/// This rank's share of a GPT on a mesh: the layers of its stage, its slice of each, its slice of
/// their optimizer state. On one rank it is the GPT.
class Replica {
 public:
  /// `c` is resolved and validated; `mesh` must outlive it. Collective.
  Replica(const TrainConfig& c, parallel::Mesh& mesh, const Observer& observer = {});
  /// For `logits` alone, with no gradients. Collective.
  Replica(const ModelConfig& model, const std::string& precision, parallel::Mesh& mesh);

  /// Forward and backward of one step: `batch(m)` is micro-batch m of this replica, every gradient
  /// is multiplied by `seed` and complete afterwards. Returns the sum of the loss over the tokens
  /// of the micro-batches, f64 [1], on the one rank of the replica that reports it; 0 on others.
  /// Collective.
  using Watch = parallel::DataParallel::Watch;
  Tensor step(const std::function<nn::Batch(int64_t micro)>& batch, double seed,
              Watch watch = Watch::off);
  /// The same without gradients, for any number of micro-batches.
  Tensor evaluate(int64_t micros, const std::function<nn::Batch(int64_t micro)>& batch);

  /// Logits [rows, vocab] of a batch without targets, the same on every rank. Collective.
  Tensor logits(const nn::Batch& batch);

  Gpt& model() { return model_; }
  parallel::DataParallel& data() { return data_; }
  const parallel::Pipeline& pipeline() const { return pipeline_; }
  /// The layers of this rank's stage.
  const std::vector<nn::Layers>& chunks() const { return chunks_; }

 private:
  parallel::PipelineRun collect(const Tensor& loss, int64_t micros,
                                const std::function<nn::Batch(int64_t)>& batch) const;

  Replica(const TrainConfig& c, parallel::Mesh& mesh, nn::Purpose purpose,
          const Observer& observer);

  TrainConfig config_;
  parallel::Communicator& pp_;
  parallel::TensorParallel tp_;
  Gpt model_;
  std::vector<nn::Layers> chunks_;
  parallel::DataParallel data_;
  parallel::Pipeline pipeline_;
};

/// How many layers (embedding, blocks, head) each virtual stage holds: --placement, or balanced by
/// cost.
std::vector<int64_t> placement(const TrainConfig& c, const nn::Layers& layers);

}  // namespace triax::minigpt
