#pragma once
#include "triax/nn/dropout.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

/// nn::Dropout outside of split stretches: it drops the same elements on any mesh.
class Dropout : public nn::Dropout {
 public:
  Dropout(double p, const TensorParallel& tp) : nn::Dropout(p), tp_(tp) {}

  /// True if it drops anything of this batch.
  bool drops(const nn::Batch& batch) const { return mask(batch.first).p > 0; }
  /// Drops elements of x as outside [rows, width]; a sample has `rows_each` rows over the ranks
  /// that split layers (tp).
  Tensor operator()(const Tensor& x, const nn::Batch& batch, int64_t rows_each) const;

 private:
  TensorParallel tp_;
};

}  // namespace triax::parallel
