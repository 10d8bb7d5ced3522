#pragma once
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"
#include "optim/slot.h"
#include "parallel/comm/communicator.h"
#include "parallel/data/buckets.h"

namespace triax::parallel {

struct DataParallelOptions {
  DType dtype = f32;  ///< of the weights; gradients are f32 (f64 for f64)
  uint64_t seed = 0;
  BucketSizes buckets = {};
};

/// Owns a model's weights and gradients as flat buckets and sums the gradients over the ranks of
/// `dp` while backward still runs. With one rank it is the plain model:
///
///   DataParallel data(model, world, {.seed = 1});
///   optim::AdamW adam(data.slots(), {});
///   data.begin(micros);
///   for (...) backward(loss, seed);  // seed scales: reductions are plain sums
///   data.finish();
///   adam.step(lr, optim::clip_factor(data.norm().value, 1.0));
class DataParallel {
 public:
  /// Binds, allocates and initialises every parameter of `model`, alike on all ranks. Both
  /// arguments must outlive it. Collective.
  DataParallel(nn::Module& model, Communicator& dp, const DataParallelOptions& options);
  ~DataParallel();

  /// Before the first backward of a step: gradients start afresh, and each parameter will see
  /// `micros` backward passes. A bucket is reduced as soon as all its parameters have had theirs,
  /// always in the same order on every rank.
  void begin(int64_t micros = 1);
  /// After the last backward: reduces what did not fire (unused parameters count as zero) and waits
  /// for all sums. Collective.
  void finish();

  struct Norm {
    double value;       ///< Euclidean, over each logical parameter once; infinity if not finite
    double non_finite;  ///< elements that are inf or NaN, anywhere
  };
  /// Of the summed gradient, after finish().
  Norm norm() const;
  /// The first parameter, in order of declaration, with a non-finite gradient; empty if none.
  std::string first_non_finite() const;

  /// What an optimizer updates: one slot per bucket.
  std::vector<optim::Slot> slots() const;
  /// The layout behind slots(): the same index, the same order of elements.
  const std::vector<BucketLayout>& layout() const { return layout_; }
  int64_t parameter_count() const;

 private:
  struct Bucket;
  void add_bucket(const BucketLayout& layout, const DataParallelOptions& options);
  void launch_full();
  void launch(Bucket& b);

  Communicator& dp_;
  std::vector<nn::Parameter*> parameters_;
  std::vector<BucketLayout> layout_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  int64_t due_ = 0;      // backward passes each parameter will see in this step
  size_t launched_ = 0;  // buckets whose reduction has started, in order
};

}  // namespace triax::parallel
