#pragma once
#include <cmath>
#include <vector>

#include "autograd/ops.h"

namespace triax::nn {

/// The angles of rotary position embeddings: pair i of `head_dim` / 2 turns by position / scale *
/// base^(-2 i / head_dim) (Su et al., "RoFormer", 2021, section 3.4.2; positions divided by
/// `scale`: Chen et al., "Extending context window", 2023, section 2.3).
struct RotaryOptions {
  double base = 10000, scale = 1;
  Rotary::Pairs pairs = Rotary::Pairs::halves;
};

/// rotary() for heads of one size. Its table is made at first use, on that device.
class RotaryEmbedding {
 public:
  RotaryEmbedding(int64_t positions, int64_t head_dim, const RotaryOptions& o = {})
      : positions_(positions), head_dim_(head_dim), options_(o) {}

  /// x [tokens, .., head_dim] of whole sequences of `time` tokens, which begin at position `first`;
  /// first + time at most `positions`.
  Tensor operator()(const Tensor& x, int64_t time, int64_t first = 0) const {
    if (!table_.defined() || table_.device() != x.device()) table_ = table().to(x.device());
    return rotary(x, first > 0 ? table_.narrow(0, first, time) : table_, {time, options_.pairs});
  }

 private:
  Tensor table() const {
    int64_t half = head_dim_ / 2;
    std::vector<float> values(size_t(positions_ * head_dim_));
    for (int64_t p = 0; p < positions_; ++p)
      for (int64_t i = 0; i < half; ++i) {
        double turn = std::pow(options_.base, -2 * double(i) / double(head_dim_));
        double angle = double(p) / options_.scale * turn;
        values[size_t(p * head_dim_ + i)] = float(std::cos(angle));
        values[size_t(p * head_dim_ + half + i)] = float(std::sin(angle));
      }
    return from_host(values, {positions_, head_dim_}, cpu);
  }

  int64_t positions_, head_dim_;
  RotaryOptions options_;
  mutable Tensor table_ = {};
};

}  // namespace triax::nn
