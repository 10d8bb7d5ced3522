#pragma once
#include "core/cuda/row.h"
#include "core/indices.h"

namespace triax::cuda::TRIAX_TARGET {

/// The largest of a stream of numbers and the sum of their e^(x - largest), in one pass.
template <class A> struct OnlineExps {
  A largest = Max::identity<A>(), sum = 0;

  /// What to take off before exp(): never infinite, so that -inf adds 0.
  TRIAX_HD A base() const { return largest == Max::identity<A>() ? A(0) : largest; }
  template <class T, int n> TRIAX_HD void add(const T (&x)[n]) {
    A most = largest;
#pragma unroll
    for (int k = 0; k < n; ++k) most = larger(load(x[k]), most);
    if (most > largest) {
      sum *= fast_exp(largest - most);
      largest = most;
    }
    A off = base();
#pragma unroll
    for (int k = 0; k < n; ++k) sum += fast_exp(load(x[k]) - off);
  }
};

/// stats[r] of logits; a block per row, which is read once.
template <class T, int threads_> struct CrossEntropyStats {
  static constexpr int threads = threads_;
  using A = Accumulator<T>;
  using Shared = Partials<A>;
  const T* logits;
  Targets targets;
  A* stats;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t r = t.block.x;
    const T* row = logits + r * targets.columns;
    OnlineExps<A> exps;
    A all = 0;
    walk_row(t, row, targets.valid, true, [&](int64_t, const auto& part) {
      exps.add(part.at);
#pragma unroll
      for (int k = 0; k < part.size; ++k) all += load(part.at[k]);
    });
    A largest = reduce_block(t, exps.largest, Max{}, shared);
    bool nothing = largest == Max::identity<A>();  // or only -inf: then 0 / 0
    A mine = nothing ? exps.sum : exps.sum * fast_exp(exps.largest - largest);
    A sum = reduce_block(t, mine, Sum{}, shared);
    all = reduce_block(t, all, Sum{}, shared);
    if (t.id > 0) return;
    int64_t c = targets.column(r);
    A* out = stats + 4 * r;
    out[0] = largest;
    out[1] = nothing && targets.valid > 0 ? A(__builtin_nanf("")) : sum;
    out[2] = c >= 0 ? load(row[c]) : A(0);
    out[3] = all;
  }
};

/// losses[r] from combined stats; a thread per row.
template <class A> struct CrossEntropyLosses {
  static constexpr int threads = 256;
  const A* stats;
  Targets targets;
  A* losses;
  int64_t rows;
  A smoothing, vocab;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t r = t.global();
    if (r >= rows) return;
    const A* p = stats + 4 * r;
    A lse = fn::log(p[1]) + p[0];
    A loss = (A(1) - smoothing) * (lse - p[2]) + smoothing * (lse - p[3] / vocab);
    losses[r] = targets.ignored(r) ? A(0) : loss;
  }
};

/// dlogits, which may be the logits; a block per row, which is read and written once.
template <class T, int threads_> struct CrossEntropyBackward {
  static constexpr int threads = threads_;
  using A = Accumulator<T>;
  const T* logits;
  Targets targets;
  const A *stats, *scale;
  T* dlogits;
  A on, off;  ///< what smoothing makes of the target's 1 and of the others' 0

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t r = t.block.x, n = targets.columns, target = targets.column(r);
    const T* x = logits + r * n;
    T* d = dlogits + r * n;
    int64_t valid = targets.ignored(r) ? 0 : targets.valid;
    A largest = stats[4 * r], inverse = A(1) / stats[4 * r + 1], by = *scale;
    bool packs = (reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(d)) % 16 == 0;
    walk_row(t, x, valid, packs, [&](int64_t i, const auto& part) {
      auto out = part;
      int here = uint64_t(target - i) < uint64_t(part.size) ? int(target - i) : -1;
#pragma unroll
      for (int k = 0; k < part.size; ++k) {
        A less = k == here ? on : off;
        out.at[k] = convert<T>(by * (fast_exp(load(part.at[k]) - largest) * inverse - less));
      }
      write_chunk(d + i, out);
    });
    walk_row(t, d + valid, n - valid, true, [&](int64_t i, const auto& part) {
      auto zeros = part;
#pragma unroll
      for (int k = 0; k < part.size; ++k) zeros.at[k] = convert<T>(A(0));
      write_chunk(d + valid + i, zeros);
    });
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
