#pragma once
#include "autograd/ops.h"
#include "nn/linear.h"
#include "parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

struct SplitLinearOptions {
  double std = 0.02;  ///< of the initial weight; the bias starts at 0
  bool bias = true;
  int64_t unit = 1;  ///< split features that belong together: tp never cuts, say, a head
};

/// y = x w^T + b with the rows of w [out, in] split: every rank makes out / tp of the features.
/// The way into a split stretch: x as outside [rows, in] -> [all rows, out / tp].
class ColumnLinear : public nn::Linear {
 public:
  ColumnLinear(int64_t in, int64_t out, const TensorParallel& tp, const SplitLinearOptions& o = {})
      : nn::Linear(in, out, {.std = o.std, .bias = o.bias, .shard = tp.shard(0, out, o.unit)}),
        tp_(tp) {}

  Tensor operator()(const Tensor& x) const {
    if (tp_.sliced()) return tp_.product_in(x, weight(), bias());
    return tp_.through(x, [&](const Tensor& all) { return nn::Linear::operator()(all); });
  }
  /// gelu(x w^T + b) in one pass; needs a bias.
  Tensor gelu(const Tensor& x) const {
    if (tp_.sliced()) return triax::gelu((*this)(x));
    return tp_.through(x, [&](const Tensor& all) { return nn::Linear::gelu(all); });
  }

 private:
  TensorParallel tp_;
};

/// y = x w^T + b with the columns of w [out, in] split: every rank eats in / tp of the features and
/// has a part of the sum. The way out: [all rows, in / tp] -> y as outside [rows, out].
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

  Tensor operator()(const Tensor& x) const { return onto({}, x); }
  /// rest + (*this)(x), as outside; both, and the bias, in one pass where the device can. Without
  /// `rest` if it is undefined.
  Tensor onto(const Tensor& rest, const Tensor& x) const {
    Tensor bias = bias_ ? bias_->value : Tensor();
    if (!tp_.sliced()) return tp_.leave_product(x, weight_, bias, rest);
    Tensor y = tp_.product_out(x, weight_);
    if (bias.defined()) y = y + bias;
    return rest.defined() ? rest + y : y;
  }

 private:
  TensorParallel tp_;
  nn::Parameter& weight_;
  nn::Parameter* bias_;
};

}  // namespace triax::parallel
