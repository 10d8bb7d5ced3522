#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/functors/optimizer.h"

namespace triax::cuda::TRIAX_TARGET {

/// The elements of [begin, end) that decay: those in one of the sorted ranges.
struct Segment {
  static constexpr int most = 200;  // 3.2 KB of a kernel's 4 KB of arguments
  int64_t begin, end;
  int count;
  Range decayed[most];

  /// Returns the first range that ends behind `i`, or `count`.
  TRIAX_HD int find(int64_t i) const {
    int low = 0, high = count;
    while (low < high) {
      int middle = (low + high) / 2;
      if (decayed[middle].end <= i) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  /// True if `i` decays. `range`: find() of an element not behind it; moves on.
  TRIAX_HD bool decays(int64_t i, int& range) const {
    while (range < count && decayed[range].end <= i) ++range;
    return range < count && decayed[range].begin <= i;
  }
};

/// One pass over flat buffers: update(decays, gradient, weight, state...) changes weight and state
/// of one element. `cast` is the weights' copy in a lower precision, null if there is none.
template <class Update, class T> struct OptimizerStep {
  static constexpr int threads = 256;
  using A = Accumulator<T>;
  static constexpr int size = 16 / int(sizeof(A));
  static constexpr bool casts = !__is_same(T, A);
  Segment segment;
  Update given;
  const Update* decided;  ///< by the device: counts instead; null if there is none
  const A* gradient;
  A* weight;
  A* first;  ///< state; null if the update has none
  A* second;
  T* cast;

  TRIAX_HD void pack(int64_t i, const Update& update) const {
    Pack<A, size> g = load_pack<size>(gradient + i), w = load_pack<size>(weight + i), m, v;
    Pack<T, size> c;
    if (first) m = load_pack<size>(first + i);
    if (second) v = load_pack<size>(second + i);
    int range = segment.find(i);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      update(segment.decays(i + k, range), g.at[k], w.at[k], m.at[k], v.at[k]);
      if constexpr (casts) c.at[k] = convert<T>(w.at[k]);
    }
    write_chunk(weight + i, w);
    if (first) write_chunk(first + i, m);
    if (second) write_chunk(second + i, v);
    if constexpr (casts) write_chunk(cast + i, c);
  }
  TRIAX_HD void one(int64_t i, const Update& update) const {
    int range = segment.find(i);
    A none = 0, w = weight[i], m = first ? first[i] : none, v = second ? second[i] : none;
    update(segment.decays(i, range), gradient[i], w, m, v);
    weight[i] = w;
    if (first) first[i] = m;
    if (second) second[i] = v;
    if constexpr (casts) cast[i] = convert<T>(w);
  }
  TRIAX_HD void operator()(const Thread& t) const {
    const Update update = decided ? *decided : given;
    if (!update.happens) return;
    int64_t begin = segment.begin, n = segment.end - begin;
    bool fits = packs_fit(gradient + begin, weight + begin, cast) && begin % 16 == 0 &&
                packs_fit(first, second);
    int64_t packs = fits ? n / size : 0;
#pragma unroll 1
    for (int64_t p = t.global(); p < packs; p += t.globals()) pack(begin + p * size, update);
#pragma unroll 1
    for (int64_t i = packs * size + t.global(); i < n; i += t.globals()) one(begin + i, update);
  }
};

/// Makes one step of n averages; none if `decision`, which may be null, says so.
template <class T> struct AverageElements {
  static constexpr int threads = 256;
  using A = Accumulator<T>;
  functors::MovingAverage<A> step;
  const StepDecision* decision;
  A* average;
  const T* x;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    if (decision && decision->happens == 0) return;
#pragma unroll 1
    for (int64_t i = t.global(); i < n; i += t.globals()) average[i] = step(average[i], load(x[i]));
  }
};

/// Makes a StepDecision of the host's request and the step's totals; one thread works.
struct DecideStep {
  static constexpr int threads = 32;
  const StepRequest* request;
  const StepTotals* totals;
  StepDecision* decision;

  TRIAX_HD void operator()(const Thread& t) const {
    if (t.id == 0) *decision = fn::decide_step(*request, *totals, *decision);
  }
};

/// Prepares what every thread of a step needs from the device's decision; one thread works.
template <class A, class Rule> struct PrepareUpdate {
  static constexpr int threads = 32;
  Rule rule;
  const StepDecision* decision;
  decltype(functors::update_by<A>(Rule{}, StepDecision{}))* to;

  TRIAX_HD void operator()(const Thread& t) const {
    if (t.id == 0) *to = functors::update_by<A>(rule, *decision);
  }
};

namespace {

// Calls f(segment) for pieces of the slot with as many ranges as a launch can carry: one, unless
// the slot has very many parameters.
template <class F> void for_segments(const OptimizerSlot& s, F f) {
  int64_t n = s.grad.numel();
  size_t next = 0, total = s.decayed.size();
  for (int64_t begin = 0; begin < n;) {
    Segment segment{begin, n, 0, {}};
    for (; next < total && segment.count < Segment::most; ++next)
      segment.decayed[segment.count++] = s.decayed[next];
    if (next < total) {  // packs stay whole: the last ranges may go on in the next segment
      segment.end = s.decayed[next].begin / 16 * 16;
      while (s.decayed[next - 1].end > segment.end) --next;
    }
    if (segment.end > begin) f(segment);
    begin = segment.end;
  }
}

template <class T, class Update>
void step(Stream stream, const OptimizerSlot& s, const Tensor& first, const Tensor& second,
          const Update& update, const Update* decided = nullptr) {
  using A = Accumulator<T>;
  constexpr bool casts = !__is_same(T, A);
  for_segments(s, [&](const Segment& segment) {
    OptimizerStep<Update, T> kernel{segment,
                                    update,
                                    decided,
                                    values<A>(s.grad),
                                    values<A>(casts ? s.master : s.weight),
                                    values<A>(first),
                                    values<A>(second),
                                    casts ? values<T>(s.weight) : nullptr};
    launch_map(stream, segment.end - segment.begin, kernel.size, kernel);
  });
}

}  // namespace

// With the host's numbers, or with those of a decision.
void Cuda::update(const OptimizerSlot& s, const Tensors& states, const UpdateRule& rule,
                  const UpdateStep& o) {
  Queue q{stream(), allocator()};
  Tensor first = states.empty() ? Tensor() : states[0];
  Tensor second = states.size() > 1 ? states[1] : Tensor();
  StepDecision decision{o.lr, double(o.step), o.grad_scale, 1, 0};
  visit_float(s.weight.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    auto by = [&](const auto& given) {
      auto update = functors::update_by<A>(given, decision);
      if (!o.decision.defined()) return step<T>(q.stream, s, first, second, update);
      Scratch<decltype(update)> decided(q.memory, 1);
      launch(q.stream, {},
             PrepareUpdate<A, std::decay_t<decltype(given)>>{
                 given, values<StepDecision>(o.decision), decided.data()});
      step<T>(q.stream, s, first, second, decltype(update){}, decided.data());
    };
    std::visit(by, rule);
  });
}

void Cuda::decide_step(const Tensor& request, const Tensor& totals, const Tensor& decision) {
  launch(stream(), {},
         DecideStep{values<StepRequest>(request), values<StepTotals>(totals),
                    values<StepDecision>(decision)});
}

void Cuda::average(const Tensor& average, const Tensor& x, const AverageStep& o) {
  visit_float(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch_map(stream(), x.numel(), 1,
               AverageElements<T>{{A(o.rate), A(o.scale)},
                                  values<StepDecision>(o.decision),
                                  values<A>(average),
                                  values<T>(x),
                                  x.numel()});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
