#include "core/conv.h"
#include "core/cpu/cpu.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vector.h"
#include "core/math.h"

// Convolutions by windows of 3 x 3 at stride 1: 2 x 2 results of a tile of 4 x 4 inputs d take 16
// products in place of 36 (minimal filtering F(2 x 2, 3 x 3): Winograd, "Arithmetic complexity of
// computations", 1980; Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016,
// section 4):
//
//   y = A' [(G g G') * (B' d B)] A
//
// with * element by element. Summed over channels it is 16 matrix products. The gradient of the
// input is a convolution of dy with turned weights; that of the weights the adjoint of the above,
// summed over tiles: dg = G' [(A dy A') * (B' d B)] G.
namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int points = 16;  // of a transformed tile

/// B': inputs.
struct Inputs {
  static constexpr int from = 4, to = 4;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    y[0] = x[0] - x[2];
    y[1] = x[1] + x[2];
    y[2] = x[2] - x[1];
    y[3] = x[1] - x[3];
  }
};
/// G: weights.
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
/// A': results.
struct Outputs {
  static constexpr int from = 4, to = 2;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    y[0] = x[0] + x[1] + x[2];
    y[1] = x[1] - x[2] - x[3];
  }
};
/// A: their gradients.
struct OutputGradients {
  static constexpr int from = 2, to = 4;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    y[0] = x[0];
    y[1] = x[0] + x[1];
    y[2] = x[0] - x[1];
    y[3] = -x[1];
  }
};
/// G': gradients of weights.
struct WeightGradients {
  static constexpr int from = 4, to = 3;
  template <class V> TRIAX_HD static void line(const V* x, V* y) {
    V even = (x[1] + x[2]) / 2;
    y[0] = x[0] + even;
    y[1] = (x[1] - x[2]) / 2;
    y[2] = even + x[3];
  }
};

/// F along the columns of x, then along the rows.
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

/// Where the elements of a tile begin; null: there are none, zeros to read.
template <class F, class A> struct Places {
  const A* from[F::from][F::from];
  A* to[F::to][F::to];
};

/// V is a vector of channels, or one. With `add` to what is there.
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

/// F of `count` tiles of `channels` channels; place(t) tells where tile t is.
template <class F, class A, class Place>
void transform_tiles(int64_t count, int64_t channels, Place place, Write write = Write::set) {
  int64_t grain = (1 << 14) / (points * channels) + 1;
  parallel_for(count, grain, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      Places<F, A> at = place(t);
      int64_t c = 0;
      for (; c + lanes<A> <= channels; c += lanes<A>) transform_at<F, Vector<A>, A>(at, c, write);
      for (; c < channels; ++c) transform_at<F, A, A>(at, c, write);
    }
  });
}

/// A square of places, from place(i, j).
template <int n, class T, class Place> TRIAX_HD void fill(T* (&square)[n][n], Place place) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) square[i][j] = place(i, j);
}

/// Squares of pixels of images [n, height, width, channels].
template <class T> struct Pixels {
  Images<T> images;
  int64_t height, width;
  TileGrid grid;
  int64_t padding_high = 0, padding_wide = 0;  // a square begins so far before its tile

  Pixels(const Tensor& x, const TileGrid& g)
      : images(x), height(x.size(1)), width(x.size(2)), grid(g) {}

  /// Those of tile t; null outside of the image.
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

/// Matrix `i * 4 + j` of [points, rows, columns], at one row.
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

/// F of `count` tiles, [.., channels] each.
template <class F, class A, class From, class To>
void transform_all(int64_t count, int64_t channels, const From& from, const To& to,
                   Write write = Write::set) {
  auto place = [=](int64_t t) {
    Places<F, A> at;
    from.square(t, at.from);
    to.square(t, at.to);
    return at;
  };
  transform_tiles<F, A>(count, channels, place, write);
}

/// A convolution, a few images at a time: their tiles stay in a cache.
template <class A> class Winograd {
 public:
  explicit Winograd(Backend& on, const Windows& windows)
      : on_(on), windows_(windows), grid_(windows) {}

  /// [points, out, in] of a weight.
  static Tensor weights(const Tensor& w, bool turned) {
    Tensor u = empty({points, w.size(0), w.size(3)}, w.dtype(), cpu);
    Taps<const A> taps{static_cast<const A*>(w.data()), w.size(3), turned};
    transform_all<Weights, A>(w.size(0), w.size(3), taps, Points<A>(u));
    return u;
  }

  /// y of x; u [points, in, out], of any strides.
  void forward(const Tensor& x, const Tensor& u, const Tensor& y) const {
    each_piece(x, [&](int64_t first, int64_t images, int64_t tiles) {
      Tensor m = empty({points, tiles, y.size(3)}, x.dtype(), cpu);
      on_.matmul({.a = inputs(x.narrow(0, first, images)), .b = u, .c = m});
      Pixels<A> to(y.narrow(0, first, images), grid_);
      transform_all<Outputs, A>(tiles, y.size(3), Points<const A>(m), to);
    });
  }

  void backward_weight(const Tensor& x, const Tensor& dy, const Tensor& dw, Write write) const {
    Tensor du = empty({points, dw.size(0), dw.size(3)}, dw.dtype(), cpu);
    each_piece(x, [&](int64_t first, int64_t images, int64_t tiles) {
      Tensor d = empty({points, tiles, dy.size(3)}, dy.dtype(), cpu);
      Pixels<const A> from(dy.narrow(0, first, images), grid_);
      transform_all<OutputGradients, A>(tiles, dy.size(3), from, Points<A>(d));
      on_.matmul({.a = d.transpose(1, 2),
                  .b = inputs(x.narrow(0, first, images)),
                  .c = du,
                  .write = first == 0 ? Write::set : Write::add});
    });
    Taps<A> taps{static_cast<A*>(dw.data()), dw.size(3), false};
    transform_all<WeightGradients, A>(dw.size(0), dw.size(3), Points<const A>(du), taps, write);
  }

 private:
  template <class F> void each_piece(const Tensor& x, F f) const {
    int64_t count = x.size(0), each = grid_.images_at_once();
    for (int64_t i = 0; i < count; i += each) {
      int64_t images = fn::min(each, count - i);
      f(i, images, images * grid_.of_image());
    }
  }

  /// [points, tiles, in].
  Tensor inputs(const Tensor& x) const {
    int64_t tiles = x.size(0) * grid_.of_image();
    Tensor v = empty({points, tiles, x.size(3)}, x.dtype(), cpu);
    Pixels<const A> from(x, grid_);
    from.padding_high = windows_.high.padding, from.padding_wide = windows_.wide.padding;
    transform_all<Inputs, A>(tiles, x.size(3), from, Points<A>(v));
    return v;
  }

  Backend& on_;
  Windows windows_;
  TileGrid grid_;
};

/// f(a Winograd of the element type).
template <class F> void visit(Backend& on, const Windows& windows, DType dtype, F f) {
  if (dtype == f32) f(Winograd<float>(on, windows));
  else f(Winograd<double>(on, windows));
}

/// Those by which the gradient of x reads that of y.
Windows turned(Windows w) {
  for (WindowAxis* a : {&w.high, &w.wide}) {
    int64_t size = a->count();
    *a = {.size = size, .window = 3, .padding = 2 - a->padding};
  }
  return w;
}

}  // namespace

void Cpu::conv2d(const Conv2d& c, const Tensor& y) {
  if (!tiles_are_faster(c)) return Backend::conv2d(c, y);
  visit(*this, c.windows, y.dtype(), [&](const auto& winograd) {
    winograd.forward(c.x, winograd.weights(c.weight, false).transpose(1, 2), y);
  });
}

void Cpu::conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) {
  if (!tiles_are_faster(c)) return Backend::conv2d_backward_input(c, dy, dx);
  visit(*this, turned(c.windows), dx.dtype(),
        [&](const auto& winograd) { winograd.forward(dy, winograd.weights(c.weight, true), dx); });
}

void Cpu::conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw, Write write) {
  if (!tiles_are_faster(c)) return Backend::conv2d_backward_weight(c, dy, dw, write);
  visit(*this, c.windows, dw.dtype(),
        [&](const auto& winograd) { winograd.backward_weight(c.x, dy, dw, write); });
}

}  // namespace triax::host::TRIAX_LEVEL
