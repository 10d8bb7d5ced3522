#pragma once
#include "triax/autograd/ops.h"
#include "triax/nn/module.h"

namespace triax::nn {

struct NormOptions {
  double eps = 1e-5;
  Shard shard = {};  ///< whole; other tensor-parallel ranks may hold the same and see other rows
};

/// Layer norm over the last dim of [rows, width] with learned gamma (from 1) and beta (from 0).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t width, const NormOptions& o = {})
      : eps_(o.eps),
        gamma_(
            parameter({.name = "gamma", .full = {width}, .init = {.mean = 1}, .shard = o.shard})),
        beta_(parameter({.name = "beta", .full = {width}, .shard = o.shard})) {}
  Tensor operator()(const Tensor& x) const { return layer_norm(x, gamma_, beta_, eps_); }

 private:
  double eps_;
  Parameter &gamma_, &beta_;
};

/// RMS norm over the last dim with learned gamma (from 1).
class RmsNorm : public Module {
 public:
  explicit RmsNorm(int64_t width, const NormOptions& o = {})
      : eps_(o.eps),
        gamma_(
            parameter({.name = "gamma", .full = {width}, .init = {.mean = 1}, .shard = o.shard})) {}
  Tensor operator()(const Tensor& x) const { return rms_norm(x, gamma_, eps_); }

 private:
  double eps_;
  Parameter& gamma_;
};

}  // namespace triax::nn
