#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/pack.h"
#include "core/functors.h"
#include "core/random.h"

namespace triax::cuda::TRIAX_TARGET {

/// y[i] = F(a[i], b[i]).
template <class F, class T> struct BinaryForward {
  static constexpr int threads = 256;
  const T *a, *b;
  T* y;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    map(
        t, n, y, [](T u, T v) { return convert<T>(F::forward(load(u), load(v))); }, a, b);
  }
};

/// One element of the same with any strides: offsets of y, a, b.
template <class F, class T> struct BinaryElement {
  const T *a, *b;
  T* y;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    y[at[0]] = convert<T>(F::forward(load(a[at[1]]), load(b[at[2]])));
  }
};

/// y[i] = mask[i] ? a[i] : b[i]. T: an unsigned integer as large as an element.
template <class T> struct WhereForward {
  static constexpr int threads = 256;
  const uint8_t* mask;
  const T *a, *b;
  T* y;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    map(
        t, n, y, [](uint8_t m, T u, T v) { return m != 0 ? u : v; }, mask, a, b);
  }
};

/// The same with any strides: offsets of y, mask, a, b.
template <class T> struct WhereElement {
  const uint8_t* mask;
  const T *a, *b;
  T* y;

  TRIAX_HD void operator()(const int64_t (&at)[4]) const {
    y[at[0]] = mask[at[1]] != 0 ? a[at[2]] : b[at[3]];
  }
};

/// y = x * mask over [rows, width]. Four neighbouring columns share one Philox call, so a thread
/// takes four at a time; `groups` of them touch a row.
template <class T> struct Dropout {
  static constexpr int threads = 256;
  const T* x;
  T* y;
  random::Mask mask;
  int64_t rows, width, groups;

  TRIAX_HD void operator()(const Thread& t) const {
    float keep = 1.f / (1.f - mask.p);
    int64_t skip = mask.column & 3;  // columns of a row's first group in front of the row
    for (int64_t i = t.global(); i < rows * groups; i += t.globals()) {
      int64_t r = i / groups, g = i - r * groups;
      random::Words w =
          random::philox(mask.key, uint64_t(mask.row + r), uint64_t(mask.column) / 4 + uint64_t(g));
      uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int64_t c = 4 * g + k - skip;
        if (c < 0 || c >= width) continue;
        float by = random::unit(words[k]) < mask.p ? 0.f : keep;
        y[r * width + c] = convert<T>(load(x[r * width + c]) * Accumulator<T>(by));
      }
    }
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
