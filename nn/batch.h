#pragma once
#include <string>
#include <utility>
#include <vector>

#include "triax/nn/rows.h"

namespace triax::nn {

/// The serial number that marks evaluation, which drops nothing out.
inline constexpr int64_t evaluation = -1;

/// The ranks that train on other samples of the same step: data parallelism, as a layer sees it.
class Replicas {
 public:
  virtual ~Replicas() = default;
  virtual int64_t count() const = 0;
  /// Replaces x, f64, by its sum over this rank's group of `ranks` neighbouring replicas (a divisor
  /// of count()): they hold neighbouring samples. All replicas call it alike.
  virtual void sum(const Tensor& x, int64_t ranks) const = 0;
};

/// Says what routers choose where their scores leave it open: a mesh that is compared with one rank
/// follows it where two scores are equal but for rounding.
class Choices {
 public:
  virtual ~Choices() = default;
  /// Returns what to take in place of `chosen`, i32 [rows, k], the largest first by `scores`, f32
  /// [rows, n]; all on the host. `serial`: serial_of_row of each.
  virtual Tensor settled(const std::string& router, const std::vector<int64_t>& serial,
                         const Tensor& chosen, const Tensor& scores) const = 0;
};

class KeyValueCache;  // nn/key_value_cache.h

/// One micro-batch, as every layer of a model sees it. Nothing here assumes text. In bf16 and fp16
/// the step casts floating-point tensors of input, target and extra to that dtype.
struct Batch {
  Tensor input;       ///< any dtype; dim 0 counts samples
  Tensor target;      ///< dim 0 counts samples; undefined: the model returns its prediction
  int64_t first = 0;  ///< serial number of sample 0 since the start of training, or evaluation
  const Replicas* replicas = nullptr;  ///< null: this rank has all samples
  const RowRanks* rows = nullptr;      ///< null: this rank has all rows of its samples
  KeyValueCache* cache = nullptr;      ///< of the sequence that is decoded; null: no past tokens
  Tensors extra = {};  ///< further inputs, such as a second sequence; dim 0 counts samples
  /// The loss that the samples ask of a last layer that makes a cross-entropy: `ignore` and
  /// `smoothing`. In training `seed` is the dL/dy that backward starts from.
  CrossEntropyOptions loss = {};
  /// In training the dL/dy of a sum over targets, from which losses start that other layers than
  /// the last add (attach_loss); else 0.
  double loss_seed = 0;
  const Choices* choices = nullptr;  ///< null: routers take the largest scores
  int64_t row_parts = 1;  ///< bitwise: equal parts of a sample's rows, each with a loss of its own
};

/// Returns `batch` with f(x) for each x that holds samples: input, target, extra, where defined.
template <class F> Batch mapped(Batch batch, F f) {
  auto put = [&](Tensor& x) {
    if (x.defined()) x = f(std::as_const(x));
  };
  put(batch.input), put(batch.target);
  for (auto& x : batch.extra) put(x);
  return batch;
}

/// Returns the tensors that hold samples: input, target, extra, where defined.
inline Tensors tensors(const Batch& batch) {
  Tensors all{batch.input, batch.target};
  all.insert(all.end(), batch.extra.begin(), batch.extra.end());
  std::erase_if(all, [](const Tensor& x) { return !x.defined(); });
  return all;
}

/// Returns the shapes of the tensors that layers read: input and extra.
inline std::vector<Shape> input_shapes(const Batch& batch) {
  std::vector<Shape> all{batch.input.shape()};
  for (auto& x : batch.extra) all.push_back(x.shape());
  return all;
}

/// Returns `batch` on `device`, floating-point tensors in `dtype`: the model's precision.
inline Batch to(const Batch& batch, Device device, DType dtype) {
  return mapped(batch, [&](const Tensor& x) {
    return is_float(x.dtype()) ? x.to(dtype).to(device) : x.to(device);
  });
}

/// Returns the rows of a whole sample of which this rank has `mine`.
inline int64_t whole_rows(const Batch& batch, int64_t mine) {
  return batch.rows ? mine * batch.rows->count() : mine;
}

/// Returns where those lie in it.
inline std::vector<Span> spans(const Batch& batch, int64_t mine) {
  return batch.rows ? batch.rows->spans(mine) : std::vector<Span>{{0, mine}};
}

/// Returns the serial number of row `row` of a micro-batch whose samples have `rows_each` rows over
/// all ranks: the key of dropout.
inline int64_t serial_of_row(const Batch& batch, int64_t rows_each, int64_t row = 0) {
  return batch.first == evaluation ? evaluation : batch.first * rows_each + row;
}

}  // namespace triax::nn
