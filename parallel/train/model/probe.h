#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "triax/core/meta/meta.h"
#include "triax/nn/sequence.h"
#include "triax/parallel/context/context_parallel.h"
#include "triax/parallel/pipeline/pipeline.h"
#include "triax/parallel/tensor/tensor_parallel.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// Makes the model that one rank of a tensor-parallel group holds. Pure: called for the probe and
/// again for the run.
using Build = std::function<std::unique_ptr<nn::Sequence>(const TensorParallel& tp)>;

/// Returns the model that `build` makes. Throws Error 78 if that is none.
std::unique_ptr<nn::Sequence> model_of(const Build& build, const TensorParallel& tp);

/// The elements of parameters, of the trained ones among them, which are not frozen, and of those
/// among these that the ranks of ep share out.
struct Elements {
  int64_t all = 0, trained = 0, experts = 0;
  void add(const nn::Parameter& p, int64_t elements) {
    all += elements;
    if (p.frozen) return;
    trained += elements;
    if (p.shard.is("ep", nn::Along::slice)) experts += elements;
  }
  Elements& operator+=(const Elements& o) {
    all += o.all, trained += o.trained, experts += o.experts;
    return *this;
  }
  Elements& operator-=(const Elements& o) {
    all -= o.all, trained -= o.trained, experts -= o.experts;
    return *this;
  }
};

/// A collective of the tensor-parallel ranks that starts, or is waited for, and the kernels of the
/// rank between the beat before and this one.
struct Beat {
  KernelWork work;
  size_t collective = 0;   ///< its number
  Ledger::Line sent = {};  ///< what starts; no calls: it is waited for
};

/// The work, output and parameters of a layer in one micro-batch.
struct LayerFacts {
  std::string name;
  KernelWork forward, backward;
  Boundary out;  ///< its output
  /// The collectives of the tensor-parallel ranks.
  Ledger::Line tp_forward = {}, tp_backward = {};
  /// The collectives of the context-parallel ranks.
  Ledger::Line cp_forward = {}, cp_backward = {};
  /// The collectives of other axes, such as ep, whose rows are taken to be shared out evenly.
  Ledger::Line ep_forward = {}, ep_backward = {};
  std::vector<Beat> forward_beats = {}, backward_beats = {};
  /// A rank's elements of the parameters it uses, and of those that an earlier layer uses too.
  Elements parameters = {}, shared = {};
  bool selective = false;  ///< it can recompute a part of itself: nn::Layer::selective
  /// Returns the relative time of forward and backward.
  double cost() const;
};

/// A parameter that several layers use, or that is tied.
struct SharedParameter {
  std::string name;
  bool tied = false;
  std::vector<size_t> layers;  ///< in ascending order
};

struct ProbeOptions {
  int dp = 1, tp = 1, cp = 1;                 ///< dp: all replicas; cp: all with other rows
  std::shared_ptr<const AxisKind> rows = {};  ///< a program's own in place of cp
  std::map<std::string, int> others = {};     ///< the sizes of other axes that split layers know
  ContextForm cp_form = ContextForm::ring;
  bool sequence_parallel = false;
  DType dtype = f32;
  int row_parts = 1;        ///< Batch::row_parts
  int slices = 1;           ///< Slices::count
  int pieces = 1;           ///< TensorParallelOptions::pieces
  bool bitwise = false;     ///< refuse layers that sum over samples
  std::string groups = {};  ///< groups of parameters: which are frozen (apply_groups)
  auto operator<=>(const ProbeOptions&) const = default;
};

/// A model as one pass of its layers on the meta device has shown it. Only probe() makes them, so
/// that whoever has facts has passed its checks.
class Facts {
 public:
  const std::vector<LayerFacts>& layers() const { return layers_; }
  const ProbeOptions& options() const { return options_; }
  int64_t samples() const { return inputs_[0][0]; }
  /// Returns nn::input_shapes of the batch, as a rank has it.
  const std::vector<Shape>& inputs() const { return inputs_; }
  /// Returns a sample's number of rows in the first layer, over all ranks; 0 if layers differ.
  int64_t rows_of_sample() const;
  /// Lists full shapes of all buffers and parameters in order of declaration, a line each.
  const std::string& parameters() const { return parameters_; }
  const LayerFacts& of(const std::string& layer) const;
  const std::vector<SharedParameter>& shared() const { return shared_; }
  /// Returns the facts for another number of replicas: no work, shape or check depends on it.
  Facts with_replicas(int dp) const {
    Facts same = *this;
    same.options_.dp = dp;
    return same;
  }
  /// Returns shape and dtype at every cut between virtual stages of so many layers each.
  Boundaries boundaries(const std::vector<int64_t>& counts) const;

 private:
  friend Facts probe(const Build&, const nn::Batch&, const ProbeOptions&);
  std::vector<LayerFacts> layers_;
  std::vector<SharedParameter> shared_;
  ProbeOptions options_;
  std::vector<Shape> inputs_;
  std::string parameters_;
};

/// Runs every layer forward and backward on the meta device, which computes nothing: the work of
/// each, and the shape and dtype at every cut. `like`: any micro-batch. Throws Error 78, with the
/// name of layer or parameter, for a model that tensor parallelism would train wrong (a parameter
/// that does not say what ranks hold of it, sequence parallelism with all rows on every rank) or
/// context parallelism would (attention other than nn::attend, buffers), for
/// parameters that no layer uses or no gradient reaches or that a layer's `uses` lacks, for a layer
/// that returns integers, passes no gradient to those before it or keeps a tensor after its call,
/// and for a last layer that returns no loss.
Facts probe(const Build& build, const nn::Batch& like, const ProbeOptions& options);

}  // namespace triax::parallel
