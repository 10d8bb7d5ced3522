#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/data/buckets/gathered_weights.h"
#include "parallel/data/buckets/gradient_sums.h"
#include "parallel/data/buckets/update_slots.h"
#include "parallel/data/gradient_norm.h"
#include "parallel/data/split_gradients.h"

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
class DataParallel {
 public:
  /// Binds, allocates and initialises every parameter of `model`, alike on all ranks, bucket by
  /// bucket. Both must outlive it. Collective. ZeRO-3 needs layers: Error 78.
  DataParallel(nn::Module& model, Communicator& dp, const DataParallelOptions& options);
  /// The same for the layers of `model` that this rank's pipeline stage holds, `chunks`. With
  /// ZeRO-3 each layer's `run` gathers its weights first and releases them after. Collective.
  DataParallel(nn::Module& model, std::vector<nn::Layers>& chunks, Mesh& mesh,
               const DataParallelOptions& options);
  DataParallel(const DataParallel&) = delete;  // its parts refer to one another
  DataParallel& operator=(const DataParallel&) = delete;

  /// Before the first backward of a step: gradients start afresh, and each parameter will see
  /// `micros` backward passes for each chunk that uses it. A bucket is reduced as soon as all its
  /// parameters have had theirs: with `off` and `optimizer` always in the same order; with the
  /// others after each pass, and then each pass must use all of them.
  /// With `Watch::on` every pass is looked at for first_non_finite(), which takes time.
  /// With `bitwise`, gradients come multiplied by `scale`, a power of two, alike on all ranks.
  using Watch = GradientNorm::Watch;
  void begin(int64_t micros = 1, Watch watch = Watch::off, double scale = 1);
  /// `bitwise`: what a sample may add to a gradient, without `scale`; more is NaN.
  double largest_part() const { return sums_.fixed()->largest_part(); }
  /// After the last backward: reduces what did not fire (unused parameters count as zero), waits
  /// for all sums over dp, then sums what tensor-parallel ranks and the two ends of the pipeline
  /// have only parts of. Throws Error 78 where a pass had to use a parameter. Collective.
  void finish();
  /// After the optimizer's step: every rank gets the weights that others have updated. Collective.
  void publish();

  using Norm = GradientNorm::Norm;
  /// Of the summed gradient of the whole model, after finish(). Collective, alike on all ranks.
  Norm norm() const { return norm_.norm(); }
  /// The same without waiting for the device: adds this rank's part of {sum of squares, non-finite
  /// elements} to `sums`, f64 [2]; added up over all ranks they are those of the whole model. With
  /// `bitwise` the sum of squares is a WideSum.
  void add_squares(const Tensor& sums) const { norm_.add_squares(sums); }
  /// After finish(): compares the gradients of parameters that all tensor-parallel ranks hold and
  /// use alike, and `loss`, this rank's sum of it. Throws Error 78, naming the first that differs,
  /// because a rank saw only a part of what it should. Waits for the device. Collective.
  void check_replicas(double loss) const { split_.check_replicas(loss); }
  /// From those sums.
  static Norm norm_of(std::span<const double> sums) { return GradientNorm::norm_of(sums); }
  using NonFinite = GradientNorm::NonFinite;
  /// Where an inf or a NaN in a gradient comes from. Watched: the first micro-batch, the last
  /// stage, the parameter whose gradient was complete first. Else the first parameter, in order of
  /// declaration, whose sum is not finite. Collective, alike on all ranks.
  NonFinite first_non_finite() const { return norm_.first_non_finite(); }

  /// What an optimizer updates: this rank's slice of each bucket, cut where rates change.
  std::vector<optim::Slot> slots() const { return slots_.slots(); }
  /// The weights of each slot, then the frozen ones that this rank holds, in the same form.
  Tensors weights() const { return slots_.weights(); }
  /// What lies in slot `i` (or in those weights), in order.
  std::vector<FlatPiece> slot_pieces(size_t i) const { return slots_.pieces(i); }
  /// Is what this rank holds of `p` saved and, if trained, counted in the norm? Of all replicas
  /// exactly one is.
  bool owns(const nn::Parameter& p) const { return model_.owns(p); }
  /// Elements of the whole model, each logical parameter once: all, or only those trained.
  enum class Count { all, trained };
  int64_t parameter_count(Count which = Count::all) const;
  /// Every parameter this rank holds, whole slices: gathers what is released, for as long as the
  /// returned handle lives, which is not beyond an optimizer's step. Collective.
  std::shared_ptr<void> gather_all() const;

 private:
  void build(nn::Module& model, std::vector<nn::Layers>& chunks);
  void add_bucket(const BucketLayout& layout);
  void make_weights(Bucket& b) const;

  HeldModel model_;
  SliceStore slices_{model_};
  GradientSums sums_{model_, slices_};
  GatheredWeights gathered_{model_};
  SplitGradients split_{model_};
  GradientNorm norm_{model_};
  UpdateSlots slots_;
};

}  // namespace triax::parallel
