#pragma once
#include <span>
#include <string>
#include <vector>

#include "triax/nn/batch.h"

namespace triax::nn {

/// A data set. Every method is a pure function of its arguments, so that ranks agree without
/// communicating, and is called from many threads at once.
class Samples {
 public:
  virtual ~Samples() = default;
  /// Returns the number of samples, at least 1.
  virtual int64_t count() const = 0;
  /// Returns these samples as a batch on the CPU; dim 0 of input and target counts them. Index -1
  /// is a blank that fills up the last batch of a validation: the loss must ignore its targets.
  /// With pipeline parallelism all batches must have one shape: pad them.
  virtual Batch batch(std::span<const int64_t> indices) const = 0;
  /// Returns these samples for training, with random augmentation if there is any. `first` is the
  /// serial number of the first of them since the start of training. Augment sample k as a function
  /// of (indices[k], first + k) alone: then it does not depend on the mesh, the micro-batch or a
  /// resume, and every epoch sees another crop.
  virtual Batch augmented(std::span<const int64_t> indices, int64_t /*first*/) const {
    return batch(indices);
  }
  /// Returns how many targets of a sample count. The total over replicas divides the loss, a sum.
  virtual double weight(int64_t /*index*/) const { return 1; }
  /// Returns a hash of all the data (core/io/checksum.h), which tells data sets apart.
  virtual std::string identity() const = 0;
};

/// Tensors on the CPU as a data set: sample i is row i of each, as in PyTorch's TensorDataset.
class TensorSamples : public Samples {
 public:
  /// input [samples, ..], any dtype; target [samples, ..], i32 or i64 classes or tokens, where -1
  /// does not count; extra (see Batch) [samples, ..] of any dtype. A blank has inputs 0 and target
  /// -1. Throws Error 65 for other tensors.
  TensorSamples(const Tensor& input, const Tensor& target, const Tensors& extra = {});
  int64_t count() const override { return all_.input.size(0); }
  Batch batch(std::span<const int64_t> indices) const override;
  double weight(int64_t index) const override { return weights_[size_t(index)]; }
  std::string identity() const override;

 private:
  Batch all_;
  std::vector<double> weights_;
};

}  // namespace triax::nn
