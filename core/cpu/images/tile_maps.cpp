#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/vector.h"
#include "triax/core/shared/conv.h"

// The linear maps of Winograd's filtering (winograd.cpp), tile by tile, vectors of channels at
// once.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// B', the map of inputs.
struct Inputs {
  static constexpr int from = 4, to = 4;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    y[0] = x[0] - x[2];
    y[1] = x[1] + x[2];
    y[2] = x[2] - x[1];
    y[3] = x[1] - x[3];
  }
};
/// G, the map of weights.
struct Weights {
  static constexpr int from = 3, to = 4;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    V even = (x[0] + x[2]) / 2, odd = x[1] / 2;
    y[0] = x[0];
    y[1] = even + odd;
    y[2] = even - odd;
    y[3] = x[2];
  }
};
/// A', the map of results.
struct Outputs {
  static constexpr int from = 4, to = 2;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    y[0] = x[0] + x[1] + x[2];
    y[1] = x[1] - x[2] - x[3];
  }
};
/// A, the map of the results' gradients.
struct OutputGradients {
  static constexpr int from = 2, to = 4;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    y[0] = x[0];
    y[1] = x[0] + x[1];
    y[2] = x[0] - x[1];
    y[3] = -x[1];
  }
};
/// G', the map of weight gradients.
struct WeightGradients {
  static constexpr int from = 4, to = 3;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    V even = (x[1] + x[2]) / 2;
    y[0] = x[0] + even;
    y[1] = (x[1] - x[2]) / 2;
    y[2] = even + x[3];
  }
};

/// Applies F along the columns of x, then along the rows.
template <class F, class V>
TRIAX_HD void transform(const V (&x)[F::from][F::from], V (&y)[F::to][F::to]) {
  V half[F::to][F::from];
#pragma GCC unroll 4
  for (int j = 0; j < F::from; ++j) {
    V column[F::from], result[F::to];
#pragma GCC unroll 4
    for (int i = 0; i < F::from; ++i) column[i] = x[i][j];
    F::line(column, result);
#pragma GCC unroll 4
    for (int i = 0; i < F::to; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 4
  for (int i = 0; i < F::to; ++i) F::line(half[i], y[i]);
}

/// The addresses of the elements of a tile; null: none there, read as zeros.
template <class F, class A> struct Places {
  const A* from[F::from][F::from];
  A* to[F::to][F::to];
};

/// Transforms at one channel; V is a vector of channels, or one. With `add` to what is there.
template <class F, class V, class A>
TRIAX_HD void transform_at(const Places<F, A>& at, int64_t channel, Write write) {
  V x[F::from][F::from], y[F::to][F::to], old;
#pragma GCC unroll 16
  for (int i = 0; i < F::from * F::from; ++i) {
    const A* from = at.from[i / F::from][i % F::from];
    if (from) __builtin_memcpy(&x[i / F::from][i % F::from], from + channel, sizeof(V));
    else x[i / F::from][i % F::from] = V{};
  }
  transform<F>(x, y);
#pragma GCC unroll 16
  for (int i = 0; i < F::to * F::to; ++i) {
    A* to = at.to[i / F::to][i % F::to];
    if (!to) continue;
    if (write == Write::add) {
      __builtin_memcpy(&old, to + channel, sizeof(V));
      y[i / F::to][i % F::to] += old;
    }
    __builtin_memcpy(to + channel, &y[i / F::to][i % F::to], sizeof(V));
  }
}

/// Fills a square with place(i, j).
template <int n, class T, class Place> TRIAX_HD void fill(T* (&square)[n][n], Place place) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) square[i][j] = place(i, j);
}

/// Squares of pixels of images [n, height, width, channels].
template <class T> struct Pixels {
  Images<T> images;
  int64_t height, width;
  TileGrid grid;
  int64_t padding_high = 0, padding_wide = 0;  // a square begins this far before its tile

  Pixels(const Tensor& x, const TileGrid& g)
      : images(x), height(x.size(1)), width(x.size(2)), grid(g) {}

  /// Finds the pixels of tile t; null outside of the image.
  template <int n> TRIAX_HD void square(int64_t t, T* (&to)[n][n]) const {
    int64_t at = t % grid.of_image(), image = t / grid.of_image();
    int64_t top = at / grid.across * 2 - padding_high, left = at % grid.across * 2 - padding_wide;
    fill(to, [&](int i, int j) {
      int64_t y = top + i, x = left + j;
      bool inside = y >= 0 && y < height && x >= 0 && x < width;
      return inside ? images.row(image, y) + x * images.by_pixel : nullptr;
    });
  }
};

/// Matrix `i * 4 + j` of [16, rows, columns], at one row.
template <class T> struct Points {
  T* data;
  int64_t rows, columns;
  explicit Points(const Tensor& x)
      : data(static_cast<T*>(x.data())), rows(x.size(1)), columns(x.size(2)) {}
  TRIAX_HD void square(int64_t row, T* (&to)[4][4]) const {
    fill(to, [&](int i, int j) { return data + ((i * 4 + j) * rows + row) * columns; });
  }
};

/// The squares of a weight [out, 3, 3, in], turned by half a circle for the gradient of the input.
template <class T> struct Taps {
  T* data;
  int64_t columns;
  bool turned;
  TRIAX_HD void square(int64_t row, T* (&to)[3][3]) const {
    fill(to, [&](int i, int j) {
      return data + (row * 9 + (turned ? 8 - (i * 3 + j) : i * 3 + j)) * columns;
    });
  }
};

/// Applies F to `count` tiles, [.., channels] each.
template <class F, class A, class From, class To>
void transform_all(int64_t count, int64_t channels, const From& from, const To& to,
                   Write write = Write::set) {
  int64_t grain = (1 << 14) / (16 * channels) + 1;
  parallel_each(count, grain, [=](int64_t t) {
    Places<F, A> at;
    from.square(t, at.from);
    to.square(t, at.to);
    int64_t c = 0;
    for (; c + lanes<A> <= channels; c += lanes<A>) transform_at<F, Vector<A>, A>(at, c, write);
    for (; c < channels; ++c) transform_at<F, A, A>(at, c, write);
  });
}

template <class A>
void map(TileMap which, const Windows& w, const Tensor& from, const Tensor& to, Write write) {
  TileGrid grid(w);
  int64_t channels = to.size(to.rank() - 1);
  auto* data = static_cast<A*>(to.data());
  auto* read = static_cast<const A*>(from.data());
  if (which == TileMap::inputs) {
    Pixels<const A> pixels(from, grid);
    pixels.padding_high = w.high.padding, pixels.padding_wide = w.wide.padding;
    transform_all<Inputs, A>(to.size(1), channels, pixels, Points<A>(to));
  } else if (which == TileMap::outputs) {
    transform_all<Outputs, A>(from.size(1), channels, Points<const A>(from), Pixels<A>(to, grid));
  } else if (which == TileMap::output_gradients) {
    transform_all<OutputGradients, A>(to.size(1), channels, Pixels<const A>(from, grid),
                                      Points<A>(to));
  } else if (which == TileMap::weight_gradients) {
    transform_all<WeightGradients, A>(from.size(1), channels, Points<const A>(from),
                                      Taps<A>{data, channels, false}, write);
  } else {
    Taps<const A> taps{read, channels, which == TileMap::turned_weights};
    transform_all<Weights, A>(to.size(1), channels, taps, Points<A>(to));
  }
}

}  // namespace

void Cpu::map_tiles(TileMap which, const Windows& w, const Tensor& from, const Tensor& to,
                    Write write) {
  if (to.dtype() == f32) map<float>(which, w, from, to, write);
  else map<double>(which, w, from, to, write);
}

}  // namespace triax::host::TRIAX_LEVEL
