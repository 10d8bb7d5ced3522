#include "triax/core/cuda/kernels/tensors.h"

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

namespace {

template <class T>
void copy_transposed(Stream stream, const Strides<2>& s, int dim, const T* from, T* to) {
  int last = s.rank - 1;
  Strides<2> others;
  for (int d = 0; d < last; ++d)
    if (d != dim) others.push(s.size[d], s.stride[d]);
  CopyTransposed<T> kernel{
      from, to, s.size[dim], s.size[last], s.stride[dim][0], s.stride[last][1], others};
  if (kernel.blocks() > 0) launch(stream, {kernel.blocks()}, kernel);
}

template <class T> void copy_bits(Stream stream, const Tensor& from, const Tensor& to) {
  Strides<2> strides = copy_strides(to, from);
  int dim = strides.step(0) == 1 ? transposed_dim(strides, 8) : -1;
  if (dim >= 0) copy_transposed(stream, strides, dim, values<T>(from), values<T>(to));
  else launch_strided(stream, strides, operands<T, T>(Convert<T, T>{}, to, from));
}

}  // namespace

void Cuda::copy_here(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype())
    return visit_bits(to.dtype(), [&]<class T>() { copy_bits<T>(stream(), from, to); });
  Strides<2> strides = copy_strides(to, from);
  if (strides.contiguous() && is_float(from.dtype()) && is_float(to.dtype()))
    return visit_float(to.dtype(), [&]<class To>() {
      visit_float(from.dtype(), [&]<class From>() {
        if constexpr (!__is_same(To, From))
          launch_run(stream(), to, operands<To, From>(Convert<To, From>{}, to, from));
      });
    });
  visit(to.dtype(), [&]<class To>() {
    launch_each(stream(), strides,
                ConvertElement<To>{values<void>(from), from.dtype(), values<To>(to)});
  });
}

void Cuda::fill(const Tensor& x, double value) {
  visit(x.dtype(), [&]<class V>() {
    visit_bits(x.dtype(), [&]<class T>() {
      if constexpr (sizeof(T) == sizeof(V)) {
        Fill<T> f{bit_cast<T>(convert<V>(value))};
        launch_strided(stream(), strides_of(x), operands<T>(f, x));
      }
    });
  });
}

void Cuda::accumulate(const Tensor& from, const Tensor& to) {
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      launch_run(stream(), to, operands<To, From>(Accumulate<To, From>{}, to, from));
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
