#pragma once
#include "core/cuda/kernels/convert.h"
#include "core/shared/indices.h"

namespace triax::cuda::TRIAX_TARGET {

/// One element of index_select and gather: offsets of y, of x as if its index were 0, and of the
/// index. T: an unsigned integer as large as an element; `move`: x's stride where the index counts.
template <class T> struct PickElement {
  const T* x;
  Indices index;
  T* y;
  int64_t move;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    y[at[0]] = x[at[1] + index[at[2]] * move];
  }
};

/// Adds dx[index[i]] += dy[i] for i in [0, count), ascending, by one thread for everything that may
/// meet in an element. Offsets of dx, dy and index at i = 0, and their steps.
template <class U, class T> struct AddPicked {
  U* dx;
  const T* dy;
  Indices index;
  int64_t count, move, step, step_index;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    U* to = dx + at[0];
    const T* from = dy + at[1];
    for (int64_t i = 0; i < count; ++i)
      put<Write::add>(to[index[at[2] + i * step_index] * move], load(from[i * step]));
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
