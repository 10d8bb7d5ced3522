#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "optim/slot.h"
#include "optim/window.h"
#include "parallel/data/buckets.h"
#include "parallel/data/fixed_gradients.h"
#include "parallel/data/options.h"
#include "parallel/mesh.h"

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
  ~DataParallel();

  /// Before the first backward of a step: gradients start afresh, and each parameter will see
  /// `micros` backward passes for each chunk that uses it. A bucket is reduced as soon as all its
  /// parameters have had theirs: with `off` and `optimizer` always in the same order; with the
  /// others after each pass, and then each pass must use all of them.
  /// With `Watch::on` every pass is looked at for first_non_finite(), which takes time.
  /// With `bitwise`, gradients come multiplied by `scale`, a power of two, alike on all ranks.
  enum class Watch { off, on };
  void begin(int64_t micros = 1, Watch watch = Watch::off, double scale = 1);
  /// `bitwise`: what a sample may add to a gradient, without `scale`; more is NaN.
  double largest_part() const { return fixed_->largest_part(); }
  /// After the last backward: reduces what did not fire (unused parameters count as zero), waits
  /// for all sums over dp, then sums what tensor-parallel ranks and the two ends of the pipeline
  /// have only parts of. Throws Error 78 where a pass had to use a parameter. Collective.
  void finish();
  /// After the optimizer's step: every rank gets the weights that others have updated. Collective.
  void publish();

  struct Norm {
    double value;       ///< Euclidean, over each logical parameter once; infinity if not finite
    double non_finite;  ///< elements that are inf or NaN, anywhere, also in replicas
  };
  /// Of the summed gradient of the whole model, after finish(). Collective, alike on all ranks.
  Norm norm();
  /// The same without waiting for the device: adds this rank's part of {sum of squares, non-finite
  /// elements} to `sums`, f64 [2]; added up over all ranks they are those of the whole model. With
  /// `bitwise` the sum of squares is a WideSum.
  void add_squares(const Tensor& sums) const;
  /// After finish(): compares the gradients of parameters that all tensor-parallel ranks hold and
  /// use alike, and `loss`, this rank's sum of it. Throws Error 78, naming the first that differs,
  /// because a rank saw only a part of what it should. Waits for the device. Collective.
  void check_replicas(double loss) const;
  /// From those sums.
  static Norm norm_of(std::span<const double> sums);
  struct NonFinite {
    std::string parameter;  ///< empty: none
    int rank = -1;          ///< of the world, that made it or (not watched) that holds it
    int64_t micro = -1;     ///< its micro-batch of this step; -1: not watched
  };
  /// Where an inf or a NaN in a gradient comes from. Watched: the first micro-batch, the last
  /// stage, the parameter whose gradient was complete first. Else the first parameter, in order of
  /// declaration, whose sum is not finite. Collective, alike on all ranks.
  NonFinite first_non_finite();

  /// What an optimizer updates: this rank's slice of each bucket, cut where rates change.
  std::vector<optim::Slot> slots() const;
  /// The weights of each slot, then the frozen ones that this rank holds, in the same form.
  Tensors weights() const;
  /// What lies in slot `i` (or in those weights), in order.
  std::vector<FlatPiece> slot_pieces(size_t i) const;
  /// Is what this rank holds of `p` saved and, if trained, counted in the norm? Of all replicas
  /// exactly one is.
  bool owns(const nn::Parameter& p) const;
  /// Elements of the whole model, each logical parameter once: all, or only those trained.
  enum class Count { all, trained };
  int64_t parameter_count(Count which = Count::all) const;
  /// Every parameter this rank holds, whole slices: gathers what is released, for as long as the
  /// returned handle lives, which is not beyond an optimizer's step. Collective.
  std::shared_ptr<void> gather_all() const;

 private:
  /// Ranks that sum, beside dp: null for none. All must agree whether a step is skipped.
  struct Groups {
    Communicator *tp = nullptr, *ends = nullptr, *all = nullptr;
  };
  void build(nn::Module& model, std::vector<nn::Layers>& chunks);
  void check_held_once(Communicator& pp) const;
  void check_same_model() const;
  void add_bucket(const BucketLayout& layout);
  void cut_slots(Bucket& b);
  void hook(Bucket& b, size_t piece);
  void look_at(const Bucket& b, size_t piece);
  void launch_full();
  void reduce(Bucket& b);
  void settle(Bucket& b);
  void zero_unwritten(Bucket& b);
  void check_passes() const;
  void sum_partial();
  void look_at_parts();
  template <class See> void each_gradient(Tensor Bucket::*of, See&& see) const;
  bool releases_gradients() const { return options_.zero >= Zero::gradients; }
  bool narrows() const { return options_.reduce_dtype == bf16 && dp_.size() > 1; }
  /// Are weights of such parameters cut over the ranks of dp?
  bool cuts(bool frozen) const {
    return options_.zero >= (frozen ? Zero::parameters : Zero::optimizer);
  }
  std::span<const std::unique_ptr<Bucket>> trained() const {
    return std::span(buckets_).first(trained_);
  }
  void place(std::vector<BucketLayout>& layouts, const std::vector<nn::Layers>& chunks);
  Tensor slice_of(const Bucket& b, DType dtype, size_t record) const;
  void write_weight(const Bucket& b, const Tensor& values) const;
  void add_arrived(Bucket& b);
  Tensor rounded_slice(const Bucket& b) const;
  void round_sums(Bucket& b);
  DType sums() const { return options_.bitwise ? f64 : accumulator(options_.dtype); }
  Bucket* holder(const nn::Parameter* p) const;
  void surround(nn::Layers& chunk);
  void start_gather(Bucket& b) const;
  void acquire(Bucket& b) const;
  void release(Bucket& b) const;

  Communicator& dp_;
  Groups groups_;
  DataParallelOptions options_;
  std::vector<nn::Parameter*> declared_;   // of the whole model
  std::unique_ptr<optim::Window> window_;  // slices that are offloaded to files
  std::vector<std::unique_ptr<Bucket>> buckets_;
  size_t trained_ = 0;  // of them; those behind are frozen
  struct Place {
    Bucket* bucket;
    Range range;  // of the bucket's slice
    optim::Rates rates;
  };
  std::vector<Place> places_;    // one for each of weights()
  Bucket* in_flight_ = nullptr;  // ZeRO-2/3: one reduction at a time, so that buckets can go
  int64_t due_ = 0;              // micro-batches of this step; 0: none has begun
  std::unique_ptr<FixedGradients> fixed_;  // `bitwise`
  size_t launched_ = 0;                    // buckets whose reduction has started, in order
  Watch watch_ = Watch::off;
  struct Seen {
    size_t parameter;  // in declared_
    int64_t micro;
  };
  std::optional<Seen> seen_;  // the first non-finite gradient of this rank, if watched
  bool looked_at_parts_ = false;
};

}  // namespace triax::parallel
