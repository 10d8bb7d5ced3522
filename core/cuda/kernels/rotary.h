#pragma once
#include "core/backend.h"
#include "core/cuda/kernels/convert.h"
#include "core/shared/strides.h"

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

}  // namespace triax::cuda::TRIAX_TARGET
