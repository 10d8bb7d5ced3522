#include "core/cuda/kernels/optimizer.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
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
