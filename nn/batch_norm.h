#pragma once
#include "triax/autograd/ops.h"
#include "triax/nn/batch.h"
#include "triax/nn/module.h"

namespace triax::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< of the running mean and variance
  double gamma = 1;       ///< initial value
  Shard shard = {};       ///< whole; other tensor-parallel ranks may hold the same
};

/// Batch norm over all dims but the last (Ioffe and Szegedy 2015), with learned gamma and beta and
/// a running mean and variance for evaluation. A group of `samples` samples is normalised by its
/// own statistics, whatever the mesh: groups smaller than a micro-batch lie within it ("ghost batch
/// norm", Hoffer et al. 2017); for larger ones replicas add up theirs (SyncBN). PyTorch takes
/// statistics of a rank's micro-batch, with SyncBN of all ranks' micro-batches.
///
/// The running variance averages unbiased ones, as in PyTorch. Both are updated once a step
/// (nn::Buffer). A batch without a target, or of an evaluation, is normalised by them.
class BatchNorm : public Module {
 public:
  BatchNorm(int64_t channels, int64_t samples, const BatchNormOptions& o = {});
  /// Normalises x [n, .., channels], where n counts the batch's samples or a multiple of them.
  /// Throws Error 78 if micro-batch and replicas make no groups of so many samples.
  Tensor operator()(const Tensor& x, const Batch& batch) const;

 private:
  BatchNormShape shape(const Tensor& x, const Batch& batch) const;

  int64_t samples_;
  double eps_;
  Parameter &gamma_, &beta_;
  Buffer &mean_, &variance_;
};

}  // namespace triax::nn
