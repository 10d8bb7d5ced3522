#include "core/cuda/kernels/cross_entropy.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

// f.operator()<threads>(): of the block for a row.
template <class F> void visit_threads(int64_t columns, F f) {
  if (columns <= 2048) f.template operator()<128>();
  else f.template operator()<512>();
}

}  // namespace

void Cuda::cross_entropy_stats(const CrossEntropy& c, const Tensor& stats) {
  if (c.targets.numel() == 0) return;
  Targets targets = targets_of(c);
  visit_float(c.logits.dtype(), [&]<class T>() {
    visit_threads(targets.columns, [&]<int threads>() {
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
    using A = Accumulator<T>;
    double off = c.smoothing / double(c.vocab);
    visit_threads(targets.columns, [&]<int threads>() {
      launch(stream(), {c.targets.numel()},
             CrossEntropyBackward<T, threads>{values<T>(c.logits), targets, values<A>(stats),
                                              values<A>(scale), values<T>(dlogits),
                                              A(1 - c.smoothing + off), A(off)});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
