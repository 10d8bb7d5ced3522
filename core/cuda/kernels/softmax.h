#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/reduce_block.h"

namespace triax::cuda::TRIAX_TARGET {

/// y = e^(x - largest) / sum over each row of [rows, width]; a block per row.
template <class T> struct SoftmaxForward {
  static constexpr int threads = 256;
  using A = Accumulator<T>;
  struct Shared {
    Partials<A> partials;
  };
  const T* x;
  T* y;
  int64_t width;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    const T* row = x + t.block.x * width;
    T* to = y + t.block.x * width;
    A largest = Max::identity<A>(), sum = 0;
    for (int64_t i = t.id; i < width; i += t.threads) largest = fn::max(load(row[i]), largest);
    largest = reduce_block(t, largest, Max{}, shared.partials);
    for (int64_t i = t.id; i < width; i += t.threads) sum += fn::exp(load(row[i]) - largest);
    A scale = A(1) / reduce_block(t, sum, Sum{}, shared.partials);
    for (int64_t i = t.id; i < width; i += t.threads)
      to[i] = convert<T>(fn::exp(load(row[i]) - largest) * scale);
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
