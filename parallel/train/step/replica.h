#pragma once
#include <optional>
#include <string>
#include <vector>

#include "triax/optim/optimizer.h"
#include "triax/parallel/checkpoint/checkpoint.h"
#include "triax/parallel/data/replicas.h"
#include "triax/parallel/train/model/buffers.h"
#include "triax/parallel/train/model/by_sample.h"
#include "triax/parallel/train/model/probe.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// Returns micro-batch `micro`, from 0, of this replica in some step.
using Batches = std::function<nn::Batch(int64_t micro)>;

/// This rank's share of a model on a mesh: the layers of its stage, its slice of each, its slice of
/// their optimizer state. On one rank it is the model.
class Replica {
 public:
  /// `o` is resolved and checked; `mesh` must outlive it. `facts` are of a micro-batch on this
  /// mesh. Collective. Throws Error 78 for a model that does not fit the mesh.
  Replica(Mesh& mesh, const Build& build, const StepOptions& o, Facts facts,
          const LayerObserver& observer = {});

  /// The factor of the gradient of the loss, a sum over targets: loss_scale / weight.
  struct Seed {
    double loss_scale = 1, weight = 1;
  };
  /// Runs forward and backward of one step's micro-batches: every gradient is complete afterwards.
  /// Returns the sum of the loss over this replica's targets, f64 [1], or, bitwise, a WideSum: the
  /// whole sum on every tensor-parallel rank of the stage with the last layer, 0 on other stages.
  /// Collective.
  using Watch = DataParallel::Watch;
  Tensor forward_backward(const Batches& batches, const Seed& seed, Watch watch = Watch::off);
  /// Returns that sum without gradients, for any number of micro-batches.
  Tensor evaluate(const Batches& batches, int64_t micros);
  /// Returns this rank's part of each score's sum over predictions, in the order of names. Bitwise,
  /// each is a WideSum.
  std::vector<double> score(const Batches& batches, int64_t micros, const Scores& scores);
  /// Returns the last layer's output for a batch without target, alike on every rank. With a cache,
  /// each rank's own, the batch's tokens are past afterwards. Collective.
  Tensor predict(const nn::Batch& batch);

  /// Updates the buffers after the decision about a step (a StepDecision on the device), from what
  /// its layers have accumulated. Collective over dp.
  void update_buffers(const Tensor& decision) { buffers_.update(decision); }
  /// Returns weights and buffers by logical name, without padding: all that inference needs.
  std::vector<Piece> pieces(Holder whose) const;
  /// Loads the weights of a checkpoint of any mesh; for `average`, those of kind `average`, if the
  /// run kept them. `saved`: the precision of that run, if it is another. Throws Error 65.
  void load(Checkpoint& checkpoint, Weights which = Weights::trained,
            std::optional<DType> saved = {});

  const Buffers& buffers() const { return buffers_; }
  DataParallel& data() { return data_; }
  const DataParallel& data() const { return data_; }
  const Pipeline& pipeline() const { return pipeline_; }
  const Facts& facts() const { return facts_; }
  /// Returns the number of layers of each virtual stage.
  const std::vector<int64_t>& placement() const { return counts_; }
  /// Returns the layers of this rank's stage.
  const std::vector<nn::Layers>& chunks() const { return chunks_; }
  /// Returns all parameters of the model; those of other stages have no value.
  std::vector<const nn::Parameter*> parameters() const {
    auto all = model_->parameters();
    return {all.begin(), all.end()};
  }
  /// Returns all buffers of the model, likewise.
  std::vector<const nn::Buffer*> all_buffers() const {
    auto all = model_->buffers();
    return {all.begin(), all.end()};
  }

 private:
  const Facts& facts_of(const nn::Batch& batch);
  nn::Layers prepared(const LayerObserver& observer) const;
  Tensor no_loss() const;
  void add_loss(const Tensor& one, const Tensor& sum) const;
  PipelineRun collect(const Tensor& loss, int64_t micros, const Batches& batches) const;

  StepOptions options_;
  Mesh& mesh_;
  Build build_;
  Slices slices_;
  TensorParallel tp_;
  Facts facts_;
  std::vector<int64_t> counts_;
  std::unique_ptr<nn::Sequence> model_;
  std::vector<nn::Layers> chunks_;
  DataParallel data_;
  Buffers buffers_;
  DataReplicas replicas_;
  ExactRows exact_rows_;
  std::unique_ptr<nn::RowRanks> rows_;
  int row_place_;  // this rank's among them
  Pipeline pipeline_;
  struct Predicted {
    std::vector<Shape> inputs;
    bool decoded;
    Facts facts;
  };
  std::optional<Predicted> predicted_;  // the last batch
};

/// Returns which elements of the whole parameter this rank's tensor-parallel slice is.
Part part_of(const nn::Parameter& p);

/// Returns the weights by logical name, without padding.
std::vector<Piece> weight_pieces(const DataParallel& data, Holder whose);
/// Returns the optimizer's state, likewise.
std::vector<Piece> state_pieces(const DataParallel& data, const optim::Optimizer& optimizer,
                                Holder whose);
/// Returns the weights where layers read them, whole slices without padding: those that this rank
/// has now.
std::vector<Piece> read_pieces(const Replica& replica);
/// Returns the gradients alone, after finish().
std::vector<Piece> gradient_pieces(const DataParallel& data);

/// Returns `block0.up.weight`, or `block0.up.weight/m` of an optimizer's state.
std::string name_of(const Piece& piece);

/// Returns the number of layers of each virtual stage: --placement, or balanced by cost. Throws
/// Error 78, also where block-split cannot shard a layer's input, or layers that share a parameter
/// are on stages that do not sum its gradient (check_holders).
std::vector<int64_t> place(const Facts& facts, const StepOptions& o);

/// Returns options for prediction alone: weights only, one micro-batch of one sample.
StepOptions inference_options(const MeshShape& mesh, DType dtype);

/// Returns the options of a probe for a run with these.
ProbeOptions probe_options(const StepOptions& o);

/// True if the parameter was trained. Frozen ones have neither optimizer state nor an average:
/// their weights stand for it.
bool has_state(const Checkpoint& checkpoint, const std::string& name);

}  // namespace triax::parallel
