#include "core/cuda/kernels/rows/cross_entropy.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
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
