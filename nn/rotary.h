#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "triax/nn/key_value_cache.h"

namespace triax::nn {

/// The angles of rotary position embeddings: pair i of `head_dim` / 2 turns by position *
/// base^(-2 i / head_dim) (Su et al., "RoFormer", 2021, section 3.4.2). A `scale` above 1 extends
/// the context. It divides all frequencies (Chen et al., "Extending context window", 2023, section
/// 2.3) or, with an `original_context`, low ones only, as in Llama 3.1 (`apply_scaling` in
/// models/llama3/model.py of github.com/meta-llama/llama-models): a pair that turns fewer than
/// `low_turns` times within that context is scaled, one that turns more than `high_turns` times is
/// not, and in between the frequency is interpolated linearly in the number of turns.
struct RotaryOptions {
  double base = 10000, scale = 1;
  int64_t original_context = 0;  ///< tokens; 0: all frequencies are scaled
  double low_turns = 1, high_turns = 4;
  Rotary::Pairs pairs = Rotary::Pairs::halves;

  /// Returns the frequency in radians a position.
  double frequency(int64_t pair, int64_t head_dim) const {
    double plain = std::pow(base, -2 * double(pair) / double(head_dim)), kept = 0;
    if (original_context > 0) {
      double turns = double(original_context) * plain / (2 * std::numbers::pi);
      kept = std::clamp((turns - low_turns) / (high_turns - low_turns), 0.0, 1.0);
    }
    return plain * (kept + (1 - kept) / scale);
  }
};

/// rotary() for heads of one size. The table is made at first use, on the device of x.
class RotaryEmbedding {
 public:
  RotaryEmbedding(int64_t positions, int64_t head_dim, const RotaryOptions& o = {})
      : positions_(positions), head_dim_(head_dim), options_(o) {}

  /// x [tokens, .., head_dim] of whole sequences of `time` tokens, which begin at position `first`;
  /// first + time at most `positions`.
  Tensor operator()(const Tensor& x, int64_t time, int64_t first = 0) const {
    Tensor all = known(x.device());
    return rotary(x, first > 0 ? all.narrow(0, first, time) : all, {time, options_.pairs});
  }
  /// Returns x of a batch's tokens, turned by their positions.
  Tensor operator()(const Tensor& x, const Batch& batch) const {
    int64_t time = batch.input.size(1);
    if (!batch.rows) return (*this)(x, time, first_position(batch));
    Tensor all = known(x.device());
    if (rows_.time != time || rows_.of != batch.rows || !rows_.table.is(all)) {
      memory::Scope scope(memory::buffers);
      Tensors parts;
      for (const Span& s : spans(batch, time)) parts.push_back(all.narrow(0, s.first, s.count));
      rows_ = {all, concat(parts, 0), batch.rows, time};
    }
    return rotary(x, rows_.joined, {time, options_.pairs});
  }

 private:
  const Tensor& known(Device device) const {
    memory::Scope scope(memory::buffers);  // of all micro-batches
    if (!table_.defined() || table_.device() != device) table_ = table(device);
    return table_;
  }
  Tensor table(Device device) const {
    if (device == meta_device) return empty({positions_, head_dim_}, f32, device);
    int64_t half = head_dim_ / 2;
    std::vector<float> values(size_t(positions_ * head_dim_));
    for (int64_t i = 0; i < half; ++i) {
      double frequency = options_.frequency(i, head_dim_);
      for (int64_t p = 0; p < positions_; ++p) {
        values[size_t(p * head_dim_ + i)] = float(std::cos(double(p) * frequency));
        values[size_t(p * head_dim_ + half + i)] = float(std::sin(double(p) * frequency));
      }
    }
    return from_host(values, {positions_, head_dim_}, cpu).to(device);
  }

  int64_t positions_, head_dim_;
  RotaryOptions options_;
  mutable Tensor table_ = {};
  struct Joined {
    Tensor table, joined;  // of all positions, of a rank's
    const RowRanks* of = nullptr;
    int64_t time = 0;
  };
  mutable Joined rows_ = {};  // of the last batch: alike in every step
};

}  // namespace triax::nn
