#pragma once
#include "triax/nn/norm.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

/// nn::LayerNorm outside of split stretches: every tensor-parallel rank holds all of it.
struct LayerNorm : nn::LayerNorm {
  LayerNorm(int64_t width, const TensorParallel& tp)
      : nn::LayerNorm(width, nn::NormOptions{.shard = tp.whole()}) {}
};

/// nn::RmsNorm outside of split stretches: every tensor-parallel rank holds all of it.
struct RmsNorm : nn::RmsNorm {
  RmsNorm(int64_t width, const TensorParallel& tp, double eps = 1e-5)
      : nn::RmsNorm(width, nn::NormOptions{eps, tp.whole()}) {}
};

/// RMS norm of queries or keys [rows, heads / tp, .., head_dim], inside a split stretch: of each
/// head (Qwen3), or of the features of all heads together, whose squares the ranks add up (OLMoE).
class HeadNorm : public nn::Module {
 public:
  /// `unit`: features of all heads that tp never cuts; 0: each head by itself, of `features`.
  HeadNorm(int64_t features, int64_t unit, const TensorParallel& tp, double eps)
      : tp_(tp),
        eps_(eps),
        all_(unit > 0 ? features : 0),
        gamma_(parameter(
            {.name = "gamma",
             .full = {features},
             .init = {.mean = 1},
             .shard = unit > 0 ? tp.shard(0, features, unit) : tp.whole_always_summed()})) {}

  Tensor operator()(const Tensor& x) const {
    if (all_ == 0) return rms_norm(x, gamma_, eps_);
    Tensor row = reshape(x, {x.size(0), -1});
    if (tp_.undivided()) return view(rms_norm(row, gamma_, eps_), x.shape());
    row = cast(row, accumulator(x.dtype()));
    Tensor squares = tp_.enter(tp_.leave(sum(row * row, {1}, Keep::yes)));
    Tensor y = row / sqrt(squares / double(all_) + eps_) * cast(gamma_, row.dtype());
    return view(cast(y, x.dtype()), x.shape());
  }

 private:
  TensorParallel tp_;
  double eps_;
  int64_t all_;  // features of all heads; 0: each by itself
  nn::Parameter& gamma_;
};

}  // namespace triax::parallel
