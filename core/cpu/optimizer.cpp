#include "core/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/parallel.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// f(begin, end, decays) for runs of elements that all decay or all do not, in parallel.
template <class F> void for_segments(const OptimizerSlot& s, F f) {
  parallel_for(s.grad.numel(), grain, [&](int64_t begin, int64_t end) {
    for (const Range& range : s.decayed) {
      if (range.end <= begin) continue;
      if (range.begin >= end) break;
      if (range.begin > begin) f(begin, range.begin, false);
      int64_t first = range.begin > begin ? range.begin : begin;
      begin = range.end < end ? range.end : end;
      f(first, begin, true);
    }
    if (begin < end) f(begin, end, false);
  });
}

// What holds the exact weights, and the lower-precision copy of it (null if there is none).
template <class T> struct Weights {
  using A = Accumulator<T>;
  A* exact;
  T* cast;

  explicit Weights(const OptimizerSlot& s)
      : exact(values<A>(__is_same(A, T) ? s.weight : s.master)),
        cast(__is_same(A, T) ? nullptr : values<T>(s.weight)) {}
};

template <class A> struct Adam {
  A shrink, beta1, beta2, rest1, rest2, rate, root, eps, scale;

  Adam(const AdamWStep& o, const StepDecision& decision, double decay)
      : shrink(A(1 - decision.lr * decay)),
        beta1(A(o.beta1)),
        beta2(A(o.beta2)),
        rest1(A(1 - o.beta1)),
        rest2(A(1 - o.beta2)),
        rate(A(decision.lr / (1 - __builtin_pow(o.beta1, decision.step)))),
        root(A(1 / __builtin_sqrt(1 - __builtin_pow(o.beta2, decision.step)))),
        eps(A(o.eps)),
        scale(A(decision.grad_scale)) {}
};

// One pass: w, m, v are read and written, g is read: 28 bytes of an f32 parameter.
template <class T, class A>
void adam_run(const Weights<T>& weights, const A* g, A* m, A* v, int64_t begin, int64_t end,
              const Adam<A>& k) {
  A* w = weights.exact;
  T* cast = weights.cast;
  const Adam<A> a = k;  // a copy nothing can alias
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    A d = g[i] * a.scale;
    A mi = a.beta1 * m[i] + a.rest1 * d, vi = a.beta2 * v[i] + a.rest2 * d * d;
    A wi = w[i] * a.shrink - a.rate * mi / (fn::sqrt(vi) * a.root + a.eps);
    m[i] = mi;
    v[i] = vi;
    w[i] = wi;
    if constexpr (!__is_same(T, A)) cast[i] = convert<T>(wi);
  }
}

template <class A> struct Sgd {
  A lr, momentum, decay, scale;
  bool first, nesterov;
};

template <class T, class A>
void sgd_run(const Weights<T>& weights, const A* g, A* velocity, int64_t begin, int64_t end,
             const Sgd<A>& k) {
  A* w = weights.exact;
  T* cast = weights.cast;
  const Sgd<A> s = k;
  auto update = [=](int64_t i, A step) __attribute__((always_inline)) {
    A wi = w[i] - s.lr * step;
    w[i] = wi;
    if constexpr (!__is_same(T, A)) cast[i] = convert<T>(wi);
  };
  if (!velocity) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) update(i, g[i] * s.scale + s.decay * w[i]);
    return;
  }
  // The first velocity is the gradient, whatever stood there before (it may be NaN).
  A keep = s.first ? A(0) : s.momentum, look = s.nesterov ? s.momentum : A(1);
  bool first = s.first, nesterov = s.nesterov;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    A d = g[i] * s.scale + s.decay * w[i];
    A vi = fn::select(first, d, keep * velocity[i] + d);
    velocity[i] = vi;
    update(i, fn::select(nesterov, d + look * vi, vi));
  }
}

}  // namespace

void Cpu::adamw(const OptimizerSlot& s, const Tensor& m, const Tensor& v, const AdamWStep& o) {
  StepDecision decision{o.lr, double(o.step), o.grad_scale, 1, 0};
  if (o.plan.defined()) decision = *static_cast<const StepDecision*>(o.plan.data());
  if (decision.happens == 0) return;
  visit_float(s.weight.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Weights<T> weights(s);
    const A* g = values<A>(s.grad);
    A *pm = values<A>(m), *pv = values<A>(v);
    Adam<A> plain(o, decision, 0), decaying(o, decision, o.weight_decay);
    for_segments(s, [&](int64_t begin, int64_t end, bool decays) {
      adam_run(weights, g, pm, pv, begin, end, decays ? decaying : plain);
    });
  });
}

void Cpu::sgd(const OptimizerSlot& s, const Tensor& velocity, const SgdStep& o) {
  visit_float(s.weight.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Weights<T> weights(s);
    const A* g = values<A>(s.grad);
    A* v = o.momentum == 0 ? nullptr : values<A>(velocity);
    Sgd<A> plain{A(o.lr),         A(o.momentum), A(0),
                 A(o.grad_scale), o.step == 1,   o.form == SgdStep::Form::nesterov};
    Sgd<A> decaying = plain;
    decaying.decay = A(o.weight_decay);
    for_segments(s, [&](int64_t begin, int64_t end, bool decays) {
      sgd_run(weights, g, v, begin, end, decays ? decaying : plain);
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
