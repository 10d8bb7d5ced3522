#include "core/cuda/kernels/optimizer.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

// f(segment) for pieces of the slot with as many ranges as a launch can carry: one, unless the
// slot has very many parameters.
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
          const Update& update) {
  using A = Accumulator<T>;
  constexpr bool casts = !__is_same(T, A);
  for_segments(s, [&](const Segment& segment) {
    OptimizerStep<Update, T> kernel{segment,
                                    update,
                                    values<A>(s.grad),
                                    values<A>(casts ? s.master : s.weight),
                                    values<A>(first),
                                    values<A>(second),
                                    casts ? values<T>(s.weight) : nullptr};
    launch_map(stream, segment.end - segment.begin, kernel.size, kernel);
  });
}

}  // namespace

void Cuda::adamw(const OptimizerSlot& s, const Tensor& m, const Tensor& v, const AdamWStep& o) {
  double rate = o.lr / (1 - __builtin_pow(o.beta1, double(o.step)));
  double root = 1 / __builtin_sqrt(1 - __builtin_pow(o.beta2, double(o.step)));
  visit_float(s.weight.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Adam<A> update{A(1 - o.lr * o.weight_decay),
                   A(o.beta1),
                   A(o.beta2),
                   A(1 - o.beta1),
                   A(1 - o.beta2),
                   A(rate),
                   A(root),
                   A(o.eps),
                   A(o.grad_scale)};
    step<T>(stream(), s, m, v, update);
  });
}

void Cuda::sgd(const OptimizerSlot& s, const Tensor& velocity, const SgdStep& o) {
  bool remembers = o.momentum != 0;
  visit_float(s.weight.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Sgd<A> update{A(o.lr),
                  A(o.momentum),
                  A(o.weight_decay),
                  A(o.grad_scale),
                  remembers,
                  o.step == 1,
                  o.form == SgdStep::Form::nesterov};
    step<T>(stream(), s, remembers ? velocity : Tensor(), {}, update);
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
