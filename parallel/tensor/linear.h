#pragma once
#include "triax/autograd/ops.h"
#include "triax/nn/linear.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

struct SplitLinearOptions {
  double std = 0.02;  ///< of the initial weight; the bias starts at 0
  bool bias = true;
  int64_t unit = 1;  ///< split features that belong together, such as a head: tp never cuts them
};

/// y = x w^T + b with the rows of w [out, in] split: every rank makes out / tp of the features.
/// The way into a split stretch: x as outside [rows, in] -> [all rows, out / tp].
class ColumnLinear : public nn::Linear {
 public:
  ColumnLinear(int64_t in, int64_t out, const TensorParallel& tp, const SplitLinearOptions& o = {})
      : nn::Linear(in, out, {.std = o.std, .bias = o.bias, .shard = tp.shard(0, out, o.unit)}),
        tp_(tp) {}

  Tensor operator()(const Tensor& x) const {
    return tp_.through(x, [&](const Tensor& all) { return nn::Linear::operator()(all); });
  }
  /// Returns gelu(x w^T + b) in one pass; needs a bias.
  Tensor gelu(const Tensor& x) const {
    return tp_.through(x, [&](const Tensor& all) { return nn::Linear::gelu(all); });
  }

 private:
  TensorParallel tp_;
};

/// y = x w^T + b with the columns of w [out, in] split: every rank takes in / tp of the features
/// and has a part of the sum. The way out: [all rows, in / tp] -> y as outside [rows, out].
class RowLinear : public nn::Module {
 public:
  RowLinear(int64_t in, int64_t out, const TensorParallel& tp, const SplitLinearOptions& o = {})
      : tp_(tp),
        weight_(parameter({.name = "weight",
                           .full = {out, in},
                           .init = {.std = o.std},
                           .shard = tp.shard(1, in, o.unit),
                           .decay = true})),
        bias_(o.bias ? &parameter({.name = "bias", .full = {out}, .shard = tp.whole()}) : nullptr) {
  }

  /// Adds the bias once, inside the product of one rank where that can be.
  Tensor operator()(const Tensor& x) const {
    return tp_.leave_product(x, weight_, bias_ ? bias_->value : Tensor());
  }
  /// Returns rest + (*this)(x), as outside; in one pass where there is nothing to sum.
  Tensor onto(const Tensor& rest, const Tensor& x) const {
    if (!tp_.undivided()) return rest + (*this)(x);
    return linear_onto(rest, x, weight_, bias_ ? bias_->value : Tensor());
  }

 private:
  TensorParallel tp_;
  nn::Parameter& weight_;
  nn::Parameter* bias_;
};

}  // namespace triax::parallel
