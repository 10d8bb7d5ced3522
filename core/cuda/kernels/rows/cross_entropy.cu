#include "triax/core/cuda/kernels/rows/row.h"
#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/shared/indices.h"

namespace triax::cuda::TRIAX_TARGET {

/// The largest of a stream of numbers and the sum of their e^(x - largest), in one pass.
template <class A> struct OnlineExps {
  A largest = Max::identity<A>(), sum = 0;

  /// Returns the number to take off before exp(): never infinite, so that -inf adds 0.
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

/// Computes stats[r] of a row of logits, in one thread of the block that walks the row.
template <class T> struct RowStats {
  using A = Accumulator<T>;
  OnlineExps<A> exps;
  A all = 0, at_target;

  TRIAX_HD RowStats(const Thread& t, const Targets& targets, const T* row) {
    int64_t c = t.id == 0 ? targets.column(t.block.x) : -1;
    at_target = c >= 0 ? load(row[c]) : A(0);  // read now: the gradient may take its place
  }
  template <class P> TRIAX_HD void add(const P& part) {
    exps.add(part.at);
#pragma unroll
    for (int k = 0; k < part.size; ++k) all += load(part.at[k]);
  }
  /// Joins the block's threads, all of which must call it; all get the largest and the sum.
  TRIAX_HD void join(const Thread& t, int64_t valid, Partials<A>& shared, A* stats) {
    A largest = reduce_block(t, exps.largest, Max{}, shared);
    bool nothing = largest == Max::identity<A>();  // or only -inf: then 0 / 0
    A mine = nothing ? exps.sum : exps.sum * fast_exp(exps.largest - largest);
    A sum = reduce_block(t, mine, Sum{}, shared);
    all = reduce_block(t, all, Sum{}, shared);
    exps = {largest, nothing && valid > 0 ? A(__builtin_nanf("")) : sum};
    if (t.id > 0) return;
    A* out = stats + 4 * t.block.x;
    out[0] = exps.largest;
    out[1] = exps.sum;
    out[2] = at_target;
    out[3] = all;
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
    const T* row = logits + t.block.x * targets.columns;
    RowStats<T> mine(t, targets, row);
    walk_row(t, row, targets.valid, true, [&](int64_t, const auto& part) { mine.add(part); });
    mine.join(t, targets.valid, shared, stats);
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
    A loss = (A(1) - smoothing) * (lse - p[2]);
    if (smoothing > A(0)) loss += smoothing * (lse - p[3] / vocab);  // 0 * inf if a logit is -inf
    losses[r] = targets.ignored(r) ? A(0) : loss;
  }
};

/// The gradient of a row of logits, which may lie where the logits do.
template <class T> struct RowGradient {
  using A = Accumulator<T>;
  A largest, factor;  ///< gradient = factor e^(x - largest) - less
  A on, off;          ///< less, of the target and of others
  A at_target;        ///< the target's logit; the block's first thread has it
  int64_t target;
  T* d;

  /// Stores the gradient of elements from i on as if none were the target.
  template <class P> TRIAX_HD void put(int64_t i, const P& part) const {
    auto out = part;
#pragma unroll
    for (int k = 0; k < part.size; ++k) out.at[k] = convert<T>(of(load(part.at[k]), off));
    write_chunk(d + i, out);
  }
  /// Stores the target's gradient; all threads must call it when all elements are put.
  TRIAX_HD void put_target(const Thread& t) const {
    t.sync();
    if (t.id == 0 && target >= 0) d[target] = convert<T>(of(at_target, on));
  }
  /// Clears columns from `valid` on, the padding.
  TRIAX_HD void clear(const Thread& t, int64_t valid, int64_t columns) const {
    walk_row(t, d + valid, columns - valid, true, [&](int64_t i, const auto& part) {
      auto zeros = part;
#pragma unroll
      for (int k = 0; k < part.size; ++k) zeros.at[k] = convert<T>(A(0));
      write_chunk(d + valid + i, zeros);
    });
  }

 private:
  TRIAX_HD A of(A x, A less) const { return fn::fma(fast_exp(x - largest), factor, -less); }
};

/// The values that the gradients of all rows share.
template <class T> struct GradientOf {
  using A = Accumulator<T>;
  const A* scale;
  T* dlogits;
  A on, off;  ///< what smoothing makes of the target's 1 and of the others' 0

  TRIAX_HD RowGradient<T> row(const Targets& targets, int64_t r, OnlineExps<A> exps,
                              A at_target) const {
    A by = *scale;
    return {exps.largest,      fast_divide(by, exps.sum),    by * on, by * off, at_target,
            targets.column(r), dlogits + r * targets.columns};
  }
};

/// dlogits, which may be the logits; a block per row, which is read and written once.
template <class T, int threads_> struct CrossEntropyBackward {
  static constexpr int threads = threads_;
  using A = Accumulator<T>;
  const T* logits;
  Targets targets;
  const A* stats;
  GradientOf<T> gradient;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t r = t.block.x;
    const T* x = logits + r * targets.columns;
    auto g = gradient.row(targets, r, {stats[4 * r], stats[4 * r + 1]}, stats[4 * r + 2]);
    int64_t valid = targets.ignored(r) ? 0 : targets.valid;
    bool packs = (reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(g.d)) % 16 == 0;
    walk_row(t, x, valid, packs, [&](int64_t i, const auto& part) { g.put(i, part); });
    g.put_target(t);
    g.clear(t, valid, targets.columns);
  }
};

/// Computes stats and gradient; a block per row. Between them `kept` bytes of it stay in shared
/// memory: each thread reads there what it wrote itself. The rest is read again, mostly from L2.
template <class T, int threads_, int kept> struct CrossEntropyAtOnce {
  static constexpr int threads = threads_, size = 16 / int(sizeof(T));
  using A = Accumulator<T>;
  struct Shared {
    Pack<T> row[kept / 16];
    Partials<A> partials;
  };
  const T* logits;
  Targets targets;
  A* stats;
  GradientOf<T> gradient;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t r = t.block.x, head = head_of(logits + r * targets.columns);
    const T* x = logits + r * targets.columns;
    T* d = gradient.dlogits + r * targets.columns;
    bool packs = (reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(d)) % 16 == 0;
    RowStats<T> mine(t, targets, x);
    walk_row(t, x, targets.valid, packs, [&](int64_t i, const auto& part) {
      if constexpr (std::is_same_v<decltype(part), const Pack<T>&>) {
        int64_t p = (i - head) / size;
        if (p < kept / 16) store_pack(shared.row[p].at, part);
      }
      mine.add(part);
    });
    mine.join(t, targets.valid, shared.partials, stats);
    auto g = gradient.row(targets, r, mine.exps, mine.at_target);
    int64_t valid = targets.ignored(r) ? 0 : targets.valid;
    walk_row(
        t, x, valid, packs, [&](int64_t i, const auto& part) { g.put(i, part); },
        [&](int64_t p, const T* from) {
          if (p < kept / 16) return load_pack<size>(shared.row[p].at);
          return load_pack<size>(from);
        });
    g.put_target(t);
    g.clear(t, valid, targets.columns);
  }
};

namespace {

// Calls f.operator()<threads, bytes of a row that a block keeps>(): an H100 fits 2 blocks of 512.
template <class T, class F> void visit_threads(int64_t columns, F f) {
  if (columns <= 2048) f.template operator()<128, 2048 * int(sizeof(T))>();
  else f.template operator()<512, 112 * 1024>();
}

template <class T>
GradientOf<T> gradient_of(const CrossEntropy& c, const Tensor& scale, const Tensor& dlogits) {
  using A = Accumulator<T>;
  double off = c.smoothing / double(c.vocab);
  return {values<A>(scale), values<T>(dlogits), A(1 - c.smoothing + off), A(off)};
}

}  // namespace

void Cuda::cross_entropy_stats(const CrossEntropy& c, const Tensor& stats) {
  if (c.targets.numel() == 0) return;
  Targets targets = targets_of(c);
  visit_float(c.logits.dtype(), [&]<class T>() {
    visit_threads<T>(targets.columns, [&]<int threads, int>() {
      launch(stream(), {c.targets.numel()},
             CrossEntropyStats<T, threads>{values<T>(c.logits), targets,
                                           values<Accumulator<T>>(stats)});
    });
  });
}

void Cuda::cross_entropy_losses(const CrossEntropy& c, const Tensor& stats, const Tensor& losses) {
  int64_t rows = c.targets.numel();
  if (rows == 0) return;
  Targets targets = targets_of(c);
  visit_float(c.logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream(), {(rows + 255) / 256},
           CrossEntropyLosses<A>{values<A>(stats), targets, values<A>(losses), rows, A(c.smoothing),
                                 A(c.vocab)});
  });
}

void Cuda::cross_entropy_backward(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                                  const Tensor& dlogits) {
  if (c.targets.numel() == 0) return;
  Targets targets = targets_of(c);
  visit_float(c.logits.dtype(), [&]<class T>() {
    visit_threads<T>(targets.columns, [&]<int threads, int>() {
      launch(stream(), {c.targets.numel()},
             CrossEntropyBackward<T, threads>{values<T>(c.logits), targets,
                                              values<Accumulator<T>>(stats),
                                              gradient_of<T>(c, scale, dlogits)});
    });
  });
}

void Cuda::cross_entropy_at_once(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                                 const Tensor& dlogits) {
  if (c.targets.numel() == 0) return;
  Targets targets = targets_of(c);
  visit_float(c.logits.dtype(), [&]<class T>() {
    visit_threads<T>(targets.columns, [&]<int threads, int kept>() {
      using AtOnce = CrossEntropyAtOnce<T, threads, kept>;
      Stream queue = stream();
      if (!fits<AtOnce>()) return Backend::cross_entropy_at_once(c, stats, scale, dlogits);
      launch(queue, {c.targets.numel()},
             AtOnce{values<T>(c.logits), targets, values<Accumulator<T>>(stats),
                    gradient_of<T>(c, scale, dlogits)});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
