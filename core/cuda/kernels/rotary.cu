#include "triax/core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

/// One pair of features: offsets in y, in x and in its token's row of the table; `other`: from the
/// first of a pair to the second. sign -1 turns back.
template <class T> struct TurnPair {
  const T* x;
  const float* table;
  T* y;
  int64_t half, other, time, width;  ///< width: of a token in y
  float sign;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    const float* angles = table + at[0] / width % time * 2 * half + at[2];
    Accumulator<T> c = angles[0], s = sign * angles[half];
    Accumulator<T> a = load(x[at[1]]), b = load(x[at[1] + other]);
    y[at[0]] = convert<T>(a * c - b * s);
    y[at[0] + other] = convert<T>(b * c + a * s);
  }
};

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
