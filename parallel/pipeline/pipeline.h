#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "triax/autograd/backward.h"
#include "triax/nn/layer.h"
#include "triax/parallel/mesh.h"
#include "triax/parallel/pipeline/kept_values.h"
#include "triax/parallel/pipeline/links.h"
#include "triax/parallel/pipeline/partition.h"

namespace triax::parallel {

struct PipelineOptions {
  Schedule schedule = one_f_one_b;
  Boundaries boundaries;
};

/// Micro-batches to run through the pipeline.
struct PipelineRun {
  int micros = 1;
  /// Returns micro-batch m of this replica. Called where a layer reads it.
  std::function<nn::Batch(int micro)> batch;
  /// Called on the last stage with the result of the last layer.
  std::function<void(int micro, const Tensor& y)> output;
  double seed = 1;             ///< gradient of each element of y, in training
  Boundaries boundaries = {};  ///< of this run; empty: as agreed
};

/// Runs this rank's list of actions over its chunks of the model. One executor for all schedules;
/// it knows nothing of models or of data parallelism. A received activation is a leaf whose
/// gradient goes back. With one stage it is gradient accumulation.
class Pipeline {
 public:
  /// Collective over mesh.pp(). `mesh` must outlive it. Throws Error 78 if stages disagree about
  /// chunks or boundaries, or the first has no layers.
  Pipeline(Mesh& mesh, std::vector<nn::Layers> chunks, const PipelineOptions& options);

  /// Runs forward and backward of every micro-batch, as the schedule orders them; it is checked the
  /// first time that it meets a number of micro-batches (`check_schedule`, Links::check).
  /// Collective.
  void train(const PipelineRun& run);
  /// Runs forward only; records nothing. Collective.
  void infer(const PipelineRun& run);

  /// True if this rank's `output` is called.
  bool is_last() const { return stage_ == shape(1).last_stage(); }
  /// Returns the most activations (one micro-batch in one chunk) that this stage held at once on
  /// its device in the last training run.
  int peak_live() const { return peak_live_; }
  /// Returns the communicators between stages that end here.
  std::vector<const Communicator*> links() const { return links_.all(); }

 private:
  struct Slot {  // a micro-batch in a chunk, from its forward to the end of its backward
    std::shared_ptr<Tensor> dx = std::make_shared<Tensor>();  // received x's gradient
    Tensor y;                                                 // without values after forward
    autograd::Later later;
    Tensor seed;      // on the last stage
    KeptValues kept;  // of those that are offloaded
  };
  using Key = std::pair<int, int>;  // chunk, micro-batch

  PipelineShape shape(int micros) const {
    return {stages_, int(chunks_.size()), micros, options_.schedule.placement};
  }
  void agree(Communicator& stages) const;
  void execute(const Actions& actions, const PipelineShape& shape, const PipelineRun& run);
  void drop_finished_sends();
  void forward(const Action& a, const PipelineShape& shape, const PipelineRun& run);
  void backward(const Action& a, const PipelineShape& shape, const PipelineRun& run);
  void move_kept(const Action& a);
  Incoming incoming(const Actions& actions, const PipelineShape& shape);
  Tensor receive(const Handover& what);
  void send(const PipelineShape& shape, const Handover& what, const Tensor& x);

  int stages_, stage_;
  Device device_;
  std::vector<nn::Layers> chunks_;
  PipelineOptions options_;
  Links links_;
  std::vector<std::pair<PipelineShape, Actions>> checked_;
  std::map<Key, Slot> slots_;
  std::set<Key> offloads_;               // what the list under way offloads
  int away_ = 0;                         // the slots whose values are in host memory
  Boundaries boundaries_;                // of the run under way
  std::map<Handover, Tensor> in_place_;  // between chunks, the handovers that stay on this stage
  Incoming incoming_;
  std::vector<Work> sends_;
  int peak_live_ = 0;
};

}  // namespace triax::parallel
