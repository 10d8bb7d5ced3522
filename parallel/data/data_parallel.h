#pragma once
#include <memory>
#include <span>
#include <vector>

#include "triax/parallel/data/buckets/gathered_weights.h"
#include "triax/parallel/data/buckets/gradient_sums.h"
#include "triax/parallel/data/buckets/update_slots.h"
#include "triax/parallel/data/gradient_norm.h"
#include "triax/parallel/data/split_gradients.h"

namespace triax::parallel {

/// Owns a model's weights and gradients as flat buckets and sums the gradients over the ranks of
/// the dp axis while backward still runs. Frozen parameters have weights alone, which ZeRO-3 shards
/// and ZeRO-1 and 2 leave whole. With one rank it is the plain model:
///
///   DataParallel data(model, world, {.seed = 1});
///   optim::AdamW adam(data.slots(), {});
///   data.begin(micros);
///   for (...) backward(loss, seed);  // seed scales: reductions are plain sums
///   data.finish();
///   adam.step(lr, optim::clip_factor(data.norm().value, 1.0));
///   data.publish();
class DataParallel : Immovable {  // its parts refer to one another
 public:
  /// Binds, allocates and initialises every parameter of `model`, alike on all ranks, bucket by
  /// bucket. Both must outlive it. Collective. Throws Error 78 for ZeRO-3, which needs layers.
  DataParallel(nn::Module& model, Communicator& dp, const DataParallelOptions& options);
  /// Takes the layers of `model` that this rank's pipeline stage holds, `chunks`. With ZeRO-3 each
  /// layer's `run` gathers its weights first and releases them after; with ZeRO-1 and 2 it waits
  /// for those that publish() gathers. Collective.
  DataParallel(nn::Module& model, std::vector<nn::Layers>& chunks, Mesh& mesh,
               const DataParallelOptions& options);

  using Watch = GradientNorm::Watch;
  /// Begins a step, before its first backward: gradients start afresh, and each parameter will see
  /// `micros` backward passes for each chunk that uses it. A bucket is reduced as soon as all its
  /// parameters have had theirs: with `off` and `optimizer` always in the same order; with the
  /// other stages after each pass, which then must use all of them.
  /// With `Watch::on` every pass is checked for first_non_finite(), which takes time.
  /// With `bitwise`, gradients come multiplied by `scale`, a power of two, alike on all ranks.
  void begin(int64_t micros = 1, Watch watch = Watch::off, double scale = 1);
  /// Returns, if `bitwise`, the most a sample may add to a gradient, unscaled; more is NaN.
  double largest_part() const { return sums_.exact()->largest_part(); }
  /// Ends a step's backward passes: reduces the remaining buckets (unused parameters count as
  /// zero), waits for all sums over dp, then sums the parts of tensor-parallel ranks and of the two
  /// ends of the pipeline. Throws Error 78 where a pass had to use a parameter. Collective.
  void finish();
  /// Gathers, after the optimizer's step, the weights that other ranks have updated. Collective.
  /// With layers it does not wait: each layer's `run` does, while those of later layers are
  /// gathered.
  void publish();
  /// Waits for what publish() gathers: before weights are read elsewhere than in layers.
  void await_weights() const;

  using Norm = GradientNorm::Norm;
  /// Returns the whole model's gradient norm, after finish(). Collective, alike on all ranks.
  Norm norm() const { return norm_.norm(); }
  /// Adds this rank's part of {sum of squares, non-finite elements} to `sums`, f64 [2], without
  /// waiting for the device; summed over all ranks they are those of the whole model. With
  /// `bitwise` the sum of squares is a WideSum.
  void add_squares(const Tensor& sums) const { norm_.add_squares(sums); }
  /// Compares, after finish(), the gradients of parameters that all tensor-parallel ranks hold and
  /// use alike, and `loss`, this rank's sum of it. Throws Error 78 and names the first that
  /// differs: a rank saw only a part of what it should. Waits for the device. Collective.
  void check_replicas(double loss) const { split_.check_replicas(loss); }
  /// Returns the norm of those sums.
  static Norm norm_of(std::span<const double> sums) { return GradientNorm::norm_of(sums); }
  using NonFinite = GradientNorm::NonFinite;
  /// Returns where an inf or a NaN in a gradient comes from. Watched: the first micro-batch, the
  /// last stage, the parameter whose gradient was complete first. Else the first parameter, in
  /// order of declaration, whose sum is not finite. Collective, alike on all ranks.
  NonFinite first_non_finite() const { return norm_.first_non_finite(); }

  /// Returns the optimizer's slots: this rank's slice of each bucket, cut where rates change.
  std::vector<optim::Slot> slots() const { return slots_.slots(model_); }
  /// Returns the weights of each slot, then this rank's frozen ones, in the same form.
  Tensors weights() const { return slots_.weights(); }
  /// Returns the pieces of parameters in slot `i` (or in those weights), in order.
  std::vector<FlatPiece> slot_pieces(size_t i) const { return slots_.pieces(i); }
  /// True if this rank saves what it holds of `p` and, if trained, counts it in the norm: it is so
  /// for exactly one of all replicas.
  bool owns(const nn::Parameter& p) const { return model_.owns(p); }
  enum class Count { all, trained };
  /// Returns the number of elements of the model, or its trained part, each parameter once.
  int64_t parameter_count(Count which = Count::all) const;
  /// Gathers every parameter this rank holds, whole slices, for as long as the returned handle
  /// lives, which is not beyond an optimizer's step. Collective.
  std::shared_ptr<void> gather_all() const;

 private:
  void build(nn::Module& model, std::vector<nn::Layers>& chunks);
  void add_bucket(const BucketLayout& layout);
  void make_weights(Bucket& b) const;
  void sum_over(Communicator& ranks, Bucket& b) const;

  HeldModel model_;
  SliceStore slices_{model_};
  GradientSums sums_{model_, slices_};
  GatheredWeights gathered_{model_};
  SplitGradients split_{model_};
  GradientNorm norm_{model_};
  UpdateSlots slots_;
  bool has_layers_ = false;  // which wait for their weights
};

}  // namespace triax::parallel
