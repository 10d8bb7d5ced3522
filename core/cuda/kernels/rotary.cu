#include "core/cuda/kernels/rotary.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::rotary(const Rotary& r, const Tensor& y) {
  bool halves = r.pairs == Rotary::Pairs::halves;
  int64_t half = y.size(3) / 2, step = halves ? 1 : 2, other = halves ? half : 1;
  Strides<3> pairs;  // of y, of x, and within a row of angles
  for (int d = 0; d < 3; ++d) pairs.push(y.size(d), {y.strides()[d], r.x.strides()[d], 0});
  pairs.push(half, {step, step, 1});
  float sign = r.turn == Rotary::Turn::forth ? 1 : -1;
  visit_float(y.dtype(), [&]<class T>() {
    launch_each(stream(), pairs,
                TurnPair<T>{values<T>(r.x), values<float>(r.table), values<T>(y), half, other,
                            r.time, y.strides()[0], sign});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
