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

// Updates with the host's numbers, or with those of a plan.
template <class T, class Update, class Step>
void step(const Queue& q, const OptimizerSlot& s, const Tensor (&states)[2],
          const typename Update::Rates& rates, const Step& o, int64_t number) {
  StepDecision decision{o.lr, double(number), o.grad_scale, 1, 0};
  if (!o.plan.defined())
    return step<T>(q.stream, s, states[0], states[1], Update::of(rates, decision));
  Scratch<Update> decided(q.memory, 1);
  launch(q.stream, {}, PrepareUpdate<Update>{rates, values<StepDecision>(o.plan), decided.data()});
  step<T>(q.stream, s, states[0], states[1], Update{}, decided.data());
}

}  // namespace

void Cuda::adamw(const OptimizerSlot& s, const Tensor& m, const Tensor& v, const AdamWStep& o) {
  Queue q{stream(), allocator()};
  functors::AdamRates rates{o.beta1, o.beta2, o.eps, o.weight_decay};
  visit_float(s.weight.dtype(), [&]<class T>() {
    step<T, functors::Adam<Accumulator<T>>>(q, s, {m, v}, rates, o, o.step);
  });
}

void Cuda::sgd(const OptimizerSlot& s, const Tensor& velocity, const SgdStep& o) {
  Queue q{stream(), allocator()};
  functors::SgdRates rates{o.momentum, o.weight_decay, o.form};
  visit_float(s.weight.dtype(), [&]<class T>() {
    step<T, functors::Sgd<Accumulator<T>>>(q, s, {o.momentum != 0 ? velocity : Tensor(), {}}, rates,
                                           o, o.step);
  });
}

void Cuda::lion(const OptimizerSlot& s, const Tensor& m, const LionStep& o) {
  Queue q{stream(), allocator()};
  functors::LionRates rates{o.beta1, o.beta2, o.weight_decay};
  visit_float(s.weight.dtype(), [&]<class T>() {
    step<T, functors::Lion<Accumulator<T>>>(q, s, {m, {}}, rates, o, 0);
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
                                  values<StepDecision>(o.plan),
                                  values<A>(average),
                                  values<T>(x),
                                  x.numel()});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
