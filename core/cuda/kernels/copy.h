#pragma once
#include "core/cuda/kernels/convert.h"
#include "core/cuda/kernels/pack.h"
#include "core/shared/strides.h"

namespace triax::cuda::TRIAX_TARGET {

template <class To, class From> struct Convert {
  TRIAX_HD To operator()(From x) const { return convert<To>(x); }
};

/// to += from, the sum made in to's accumulator.
template <class To, class From> struct Accumulate {
  TRIAX_HD To operator()(To to, From from) const {
    return convert<To>(load(to) + convert<Accumulator<To>>(from));
  }
};

template <class T> struct Fill {
  T value;
  TRIAX_HD T operator()() const { return value; }
};

/// Copies one dtype where `to` has neighbours in one dim, of `columns` elements, and `from` in
/// another, of `rows`: through tiles in shared memory, so that both are walked along neighbours.
/// One block per tile.
template <class T> struct CopyTransposed {
  static constexpr int threads = 256, tile = 32;
  struct Shared {
    T at[tile][tile + 1];  // [column][row]; one more, for columns in different banks
  };
  const T* from;
  T* to;
  int64_t rows, columns;
  int64_t row_of_to, column_of_from;  // strides; the other two are 1
  Strides<2> others;                  // all other dims

  TRIAX_HD static int64_t tiles(int64_t n) { return (n + tile - 1) / tile; }
  int64_t blocks() const { return tiles(rows) * tiles(columns) * others.numel; }

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t rest = t.block.x / tiles(columns), other = rest / tiles(rows), at[2];
    int64_t column = (t.block.x - rest * tiles(columns)) * tile;
    int64_t row = (rest - other * tiles(rows)) * tile;
    others.at(other, at);
    for (int c = t.warp(); c < tile; c += t.warps())
      if (column + c < columns && row + t.lane() < rows)
        shared.at[c][t.lane()] = from[at[1] + row + t.lane() + (column + c) * column_of_from];
    t.sync();
    for (int r = t.warp(); r < tile; r += t.warps())
      if (column + t.lane() < columns && row + r < rows)
        to[at[0] + (row + r) * row_of_to + column + t.lane()] = shared.at[t.lane()][r];
  }
};

/// Copies one element, with any strides, from any dtype to any other: offsets of to, from. The
/// source's dtype is looked up, which spares 42 kernels.
template <class To> struct ConvertElement {
  const void* from;
  DType dtype;
  To* to;

  template <class From> TRIAX_HD To read(int64_t at) const {
    return convert<To>(static_cast<const From*>(from)[at]);
  }
  TRIAX_HD To read(int64_t at) const {
    switch (dtype) {
      case DType::f32:
        return read<float>(at);
      case DType::f64:
        return read<double>(at);
      case DType::f16:
        return read<Half>(at);
      case DType::bf16:
        return read<BFloat16>(at);
      case DType::i32:
        return read<int32_t>(at);
      case DType::i64:
        return read<int64_t>(at);
      default:
        return read<uint8_t>(at);
    }
  }
  TRIAX_HD void operator()(const int64_t (&at)[2]) const { to[at[0]] = read(at[1]); }
};

}  // namespace triax::cuda::TRIAX_TARGET
