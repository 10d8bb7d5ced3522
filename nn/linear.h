#pragma once
#include "triax/autograd/ops.h"
#include "triax/nn/module.h"

namespace triax::nn {

struct LinearOptions {
  double std = 0.02;  ///< of the initial weight; the bias starts at 0
  bool bias = true;
  Shard shard = {};  ///< both whole; other tensor-parallel ranks may hold the same
};

/// y = x w^T + b: x [rows, in] -> [rows, out]. Weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, const LinearOptions& o = {})
      : weight_(parameter({.name = "weight",
                           .full = {out, in},
                           .init = {.std = o.std},
                           .shard = o.shard,
                           .decay = true})),
        bias_(o.bias ? &parameter({.name = "bias", .full = {out}, .shard = o.shard}) : nullptr) {}

  Tensor operator()(const Tensor& x) const { return linear(x, weight_, bias()); }
  /// Returns gelu(x w^T + b) in one pass; needs a bias.
  Tensor gelu(const Tensor& x) const { return linear_gelu(x, weight_, bias()); }

 protected:
  const Tensor& weight() const { return weight_; }
  Tensor bias() const { return bias_ ? bias_->value : Tensor(); }

 private:
  Parameter& weight_;
  Parameter* bias_;
};

}  // namespace triax::nn
