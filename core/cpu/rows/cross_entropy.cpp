#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/rows/row.h"
#include "triax/core/shared/convert.h"
#include "triax/core/shared/indices.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

// A CrossEntropy as pointers and numbers.
template <class T> struct Slice : Targets {
  const T* logits;
  int64_t rows;

  explicit Slice(const CrossEntropy& c)
      : Targets(targets_of(c)), logits(values<const T>(c.logits)), rows(c.targets.numel()) {}
  int64_t grain() const { return (1 << 13) / (columns + 1) + 1; }
};

template <class T, class A> void stats_row(const Slice<T>& s, int64_t r, A* out) {
  const T* x = s.logits + r * s.columns;
  A largest = max_of<A>(s.valid, [=](int64_t i) { return load(x[i]); });
  A exps, sum;
  auto term = [=](int64_t i, A & e, A & l) __attribute__((always_inline)) {
    A v = load(x[i]);
    e += fn::exp(v - largest);
    l += v;
  };
  sums_of(s.valid, term, exps, sum);
  int64_t t = s.column(r);
  out[0] = largest;
  out[1] = exps;
  out[2] = t >= 0 ? load(x[t]) : A(0);
  out[3] = sum;
}

template <class A> struct Coefficients {
  A scale, on, off;  // on, off: what smoothing makes of the target's 1 and of the others' 0
};

template <class T, class A>
void backward_row(const Slice<T>& s, int64_t r, const A* stats, const Coefficients<A>& k, T* to) {
  const T* x = s.logits + r * s.columns;
  T* d = to + r * s.columns;
  int64_t valid = s.ignored(r) ? 0 : s.valid, t = s.column(r);
  A largest = stats[0], scale = k.scale, inverse = A(1) / stats[1], off = k.off;
  A at_target = t >= 0 ? load(x[t]) : A(0);  // read now: d may be x
#pragma omp simd
  for (int64_t i = 0; i < valid; ++i)
    d[i] = convert<T>(scale * (fn::exp(load(x[i]) - largest) * inverse - off));
  for (int64_t i = valid; i < s.columns; ++i) d[i] = convert<T>(A(0));
  if (t >= 0) d[t] = convert<T>(scale * (fn::exp(at_target - largest) * inverse - k.on));
}

}  // namespace

void Cpu::cross_entropy_stats(const CrossEntropy& c, const Tensor& stats) {
  visit_float(c.logits.dtype(), [&]<class T>() {
    Slice<T> s(c);
    auto* out = values<Accumulator<T>>(stats);
    parallel_each(s.rows, s.grain(), [&](int64_t r) { stats_row(s, r, out + 4 * r); });
  });
}

void Cpu::cross_entropy_losses(const CrossEntropy& c, const Tensor& stats, const Tensor& losses) {
  visit_float(c.logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Slice<T> s(c);
    const A* in = values<A>(stats);
    A* out = values<A>(losses);
    A smooth = A(c.smoothing), vocab = A(c.vocab);
    for (int64_t r = 0; r < s.rows; ++r) {
      const A* p = in + 4 * r;
      A lse = fn::log(p[1]) + p[0];
      A loss = (A(1) - smooth) * (lse - p[2]);
      if (smooth > 0) loss += smooth * (lse - p[3] / vocab);  // 0 * inf if a logit is -inf
      out[r] = s.ignored(r) ? A(0) : loss;
    }
  });
}

void Cpu::cross_entropy_backward(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                                 const Tensor& dlogits) {
  visit_float(c.logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Slice<T> s(c);
    const A* in = values<A>(stats);
    T* to = values<T>(dlogits);
    double off = c.smoothing / double(c.vocab);
    Coefficients<A> k{*values<A>(scale), A(1 - c.smoothing + off), A(off)};
    parallel_each(s.rows, s.grain(), [&](int64_t r) { backward_row(s, r, in + 4 * r, k, to); });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
