#pragma once
#include "autograd/ops.h"
#include "nn/module.h"

namespace triax::nn {

/// Layer norm over the last dim of [rows, width] with learned gamma (from 1) and beta (from 0).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t width, double eps = 1e-5)
      : eps_(eps),
        gamma_(parameter({.name = "gamma", .full = {width}, .init = {.mean = 1}})),
        beta_(parameter({.name = "beta", .full = {width}})) {}
  Tensor operator()(const Tensor& x) const { return layer_norm(x, gamma_, beta_, eps_); }

 private:
  double eps_;
  Parameter &gamma_, &beta_;
};

/// RMS norm over the last dim with learned gamma (from 1).
class RmsNorm : public Module {
 public:
  explicit RmsNorm(int64_t width, double eps = 1e-5)
      : eps_(eps), gamma_(parameter({.name = "gamma", .full = {width}, .init = {.mean = 1}})) {}
  Tensor operator()(const Tensor& x) const { return rms_norm(x, gamma_, eps_); }

 private:
  double eps_;
  Parameter& gamma_;
};

}  // namespace triax::nn
