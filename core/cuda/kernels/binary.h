#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/pack.h"
#include "core/functors/binary.h"
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

/// `size` neighbours, or so many times the first one.
template <int size, class T> TRIAX_HD Pack<T, size> pack_or_repeat(const T* from, bool repeats) {
  if (!repeats) return load_pack<size>(from);
  Pack<T, size> p;
  T first = *from;
#pragma unroll
  for (int k = 0; k < size; ++k) p.at[k] = first;
  return p;
}

/// A pack of rows whose operands may be rows, or one element per row or of all.
template <class F, class T> struct BinaryPack {
  static constexpr int size = pack_size<T>();
  const T *a, *b;
  T* y;
  bool repeats_a, repeats_b;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    auto u = pack_or_repeat<size>(a + at[1], repeats_a);
    auto v = pack_or_repeat<size>(b + at[2], repeats_b);
    Pack<T, size> out;
#pragma unroll
    for (int k = 0; k < size; ++k) out.at[k] = convert<T>(F::forward(load(u.at[k]), load(v.at[k])));
    store_pack(y + at[0], out);
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

/// A pack of rows, as BinaryPack has them.
template <class T> struct WherePack {
  static constexpr int size = pack_size<uint8_t>();
  const uint8_t* mask;
  const T *a, *b;
  T* y;
  bool repeats_mask, repeats_a, repeats_b;

  TRIAX_HD void operator()(const int64_t (&at)[4]) const {
    auto m = pack_or_repeat<size>(mask + at[1], repeats_mask);
    auto u = pack_or_repeat<size>(a + at[2], repeats_a);
    auto v = pack_or_repeat<size>(b + at[3], repeats_b);
#pragma unroll
    for (int k = 0; k < size; ++k) u.at[k] = m.at[k] != 0 ? u.at[k] : v.at[k];
    store_pack(y + at[0], u);
  }
};

/// y = x * mask over [rows, width]. Four neighbouring columns share one Philox call, so a thread
/// takes four at a time; `groups` of them touch a row. `packed`: all groups lie within their rows
/// and may be moved as packs.
template <class T> struct Dropout {
  static constexpr int threads = 256;
  const T* x;
  T* y;
  random::Mask mask;
  const int64_t* shift;  ///< of the mask's rows; null: none
  int64_t rows, width, groups;
  bool packed;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t first = mask.row + (shift ? *shift : 0);
    int64_t skip = mask.column & 3;  // columns of a row's first group in front of the row
    for (int64_t i = t.global(); i < rows * groups; i += t.globals()) {
      int64_t r = i / groups, g = i - r * groups;
      random::Words w =
          random::philox(mask.key, uint64_t(first + r), uint64_t(mask.column) / 4 + uint64_t(g));
      uint32_t words[4] = {w.x, w.y, w.z, w.w};
      if (packed) {
        Pack<T, 4> p = load_pack<4>(x + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; ++k) p.at[k] = times(p.at[k], words[k]);
        store_pack(y + 4 * i, p);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          int64_t c = 4 * g + k - skip;
          if (c >= 0 && c < width) y[r * width + c] = times(x[r * width + c], words[k]);
        }
      }
    }
  }
  TRIAX_HD T times(T value, uint32_t word) const {
    float by = random::unit(word) < mask.p ? 0.f : 1.f / (1.f - mask.p);
    return convert<T>(load(value) * Accumulator<T>(by));
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
