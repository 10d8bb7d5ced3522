#include "triax/core/functors/optimizer.h"

#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// Calls f(begin, end, decays) for runs of elements that all decay or all do not, in parallel.
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

// The exact weights and the lower-precision copy of them (null if there is none).
template <class T> struct Weights {
  using A = Accumulator<T>;
  A* exact;
  T* cast;

  explicit Weights(const OptimizerSlot& s)
      : exact(values<A>(__is_same(A, T) ? s.weight : s.master)),
        cast(__is_same(A, T) ? nullptr : values<T>(s.weight)) {}
};

// Buffers like `weights.exact`, as many as the update has.
template <class A> struct States { A *first = nullptr, *second = nullptr; };

// One pass: AdamW reads and writes w, m, v and reads g: 28 bytes of an f32 parameter.
template <int states, class T, class A, class Update>
void update_all(const OptimizerSlot& s, const States<A>& state, const Update& given) {
  Weights<T> weights(s);
  const A* g = values<A>(s.grad);
  for_segments(s, [=](int64_t begin, int64_t end, bool decays) {
    A *w = weights.exact, *first = state.first, *second = state.second;
    T* cast = weights.cast;
    const Update update = given;  // a copy nothing can alias
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      A wi = w[i], mi = 0, vi = 0;
      if constexpr (states > 0) mi = first[i];
      if constexpr (states > 1) vi = second[i];
      update(decays, g[i], wi, mi, vi);
      if constexpr (states > 0) first[i] = mi;
      if constexpr (states > 1) second[i] = vi;
      w[i] = wi;
      if constexpr (!__is_same(T, A)) cast[i] = convert<T>(wi);
    }
  });
}

/// Returns the step's decision, which lies in the host's memory, or without one the host's numbers.
StepDecision decision_of(const UpdateStep& o) {
  if (o.decision.defined()) return *static_cast<const StepDecision*>(o.decision.data());
  return {o.lr, double(o.step), o.grad_scale, 1, 0};
}

}  // namespace

void Cpu::update(const OptimizerSlot& s, const Tensors& states, const UpdateRule& rule,
                 const UpdateStep& o) {
  StepDecision decision = decision_of(o);
  if (decision.happens == 0) return;
  visit_float(s.weight.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    auto by = [&]<int count>(const auto& given) {
      States<A> held;
      if constexpr (count > 0) held.first = values<A>(states[0]);
      if constexpr (count > 1) held.second = values<A>(states[1]);
      update_all<count, T>(s, held, functors::update_by<A>(given, decision));
    };
    if (auto* adamw = std::get_if<AdamWRule>(&rule)) by.template operator()<2>(*adamw);
    else if (auto* lion = std::get_if<LionRule>(&rule)) by.template operator()<1>(*lion);
    else if (auto& sgd = *std::get_if<SgdRule>(&rule); sgd.momentum != 0)
      by.template operator()<1>(sgd);
    else by.template operator()<0>(sgd);
  });
}

void Cpu::average(const Tensor& average, const Tensor& x, const AverageStep& o) {
  if (o.decision.defined() && static_cast<const StepDecision*>(o.decision.data())->happens == 0)
    return;
  int64_t n = x.numel();
  visit_float(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    functors::MovingAverage<A> step{A(o.rate), A(o.scale)};
    A* to = values<A>(average);
    const T* from = values<T>(x);
    parallel_for(n, grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = step(to[i], load(from[i]));
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
