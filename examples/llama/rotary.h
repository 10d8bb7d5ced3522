#pragma once
#include <cmath>
#include <vector>

#include "autograd/ops.h"

/// Rotary position embedding (Su et al., "RoFormer", 2021, section 3.4) in Llama's form: the first
/// half of a head is paired with the second. For x [sequences, tokens, groups, heads, head_dim].
class Rotary {
 public:
  Rotary(int64_t context, int64_t head_dim, double theta = 10000)
      : context_(context), half_(head_dim / 2), theta_(theta) {}

  triax::Tensor operator()(const triax::Tensor& x) const {
    make_tables(x);
    auto of_tokens = [&](const triax::Tensor& table) { return table.narrow(0, 0, x.size(1)); };
    auto cos = of_tokens(cos_), sin = of_tokens(sin_);
    auto a = narrow(x, -1, 0, half_), b = narrow(x, -1, half_, half_);
    return triax::concat({a * cos - b * sin, b * cos + a * sin}, -1);
  }

 private:
  /// Made at first use, on the device and in the precision of the model.
  void make_tables(const triax::Tensor& like) const {
    if (cos_.defined()) return;
    std::vector<float> cos, sin;
    for (int64_t t = 0; t < context_; ++t)
      for (int64_t i = 0; i < half_; ++i) {
        double angle = double(t) * std::pow(theta_, -double(i) / double(half_));
        cos.push_back(float(std::cos(angle)));
        sin.push_back(float(std::sin(angle)));
      }
    triax::Shape shape{context_, 1, 1, half_};
    auto table = [&](const std::vector<float>& values) {
      return triax::from_host(values, shape, triax::cpu).to(like.dtype()).to(like.device());
    };
    cos_ = table(cos), sin_ = table(sin);
  }

  int64_t context_, half_;
  double theta_;
  mutable triax::Tensor cos_ = {}, sin_ = {};  // [context, 1, 1, half]
};
