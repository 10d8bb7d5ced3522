#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/conv.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;  // elements of a piece of work
__attribute__((always_inline)) inline int64_t pieces_of(int64_t elements) {
  return grain / (elements + 1) + 1;
}

/// Holds `n` elements for each thread, in cache lines of its own. Made before the threads begin,
/// once for all pieces.
template <class A> class ThreadScratch {
 public:
  explicit ThreadScratch(int64_t n) : n_((n + 15) / 16 * 16), all_(n_ * team_threads()) {}
  A* mine() const { return all_.data() + n_ * (share_here() - first_); }

 private:
  int64_t n_, first_ = share_here();  // not 0 within a share of another team
  Scratch<A> all_;
};

/// Calls f(k, x) for the elements k of window o that lie inside the image, at x.
template <class F> TRIAX_HD void inside(const WindowAxis& a, int64_t o, F f) {
  for (int64_t k = 0; k < a.window; ++k)
    if (int64_t x = a.at(o, k); x >= 0 && x < a.size) f(k, x);
}

/// Copies one row of a window: [window][channels].
template <class T>
void read_row(const T* row, const Images<const T>& x, const WindowAxis& wide, int64_t o, T* to) {
  int64_t c = x.channels, left = wide.at(o, 0);
  bool whole = left >= 0 && left + wide.window <= wide.size;
  if (whole && wide.dilation == 1 && x.by_pixel == c) {
    __builtin_memcpy(to, row + left * c, size_t(wide.window * c) * sizeof(T));
    return;
  }
  __builtin_memset(to, 0, size_t(wide.window * c) * sizeof(T));
  inside(wide, o, [&](int64_t k, int64_t at) {
    __builtin_memcpy(to + k * c, row + at * x.by_pixel, size_t(c) * sizeof(T));
  });
}

template <class T> void read_windows(const Images<const T>& x, const Windows& w, T* y) {
  int64_t down = w.high.count(), across = w.wide.count(), part = w.wide.window * x.channels;
  int64_t width = w.high.window * part;
  parallel_each(x.count * down, pieces_of(across * width), [=](int64_t r) {
    for (int64_t o = 0; o < across; ++o) {
      T* to = y + (r * across + o) * width;
      if (w.high.padding > 0) __builtin_memset(to, 0, size_t(width) * sizeof(T));
      inside(w.high, r % down, [&](int64_t k, int64_t at) {
        read_row(x.row(r / down, at), x, w.wide, o, to + k * part);
      });
    }
  });
}

/// sums [size][channels] += a row of a window.
template <class A, class T>
void add_row(const T* from, const WindowAxis& wide, int64_t o, int64_t channels, A* sums) {
  inside(wide, o, [&](int64_t k, int64_t at) {
    const T* part = from + k * channels;
    A* to = sums + at * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) to[c] += load(part[c]);
  });
}

/// Adds windows row by row of dx, so that no two threads write to the same one.
template <class T> void add_windows(const T* dy, const Windows& w, const Images<T>& dx) {
  using A = Accumulator<T>;
  int64_t down = w.high.count(), across = w.wide.count(), channels = dx.channels;
  int64_t part = w.wide.window * channels, width = w.high.window * part;
  int64_t row = w.wide.size * channels;
  ThreadScratch<A> scratch(row);
  parallel_for(dx.count * w.high.size, pieces_of(row * w.elements()),
               [=, &scratch](int64_t begin, int64_t end) {
                 A* sums = scratch.mine();
                 for (int64_t r = begin; r < end; ++r) {
                   int64_t image = r / w.high.size, y = r % w.high.size;
                   for (int64_t i = 0; i < row; ++i) sums[i] = 0;
                   for (int64_t k = 0; k < w.high.window; ++k) {
                     int64_t o = w.high.reader(y, k);
                     if (o < 0) continue;
                     const T* from = dy + (image * down + o) * across * width + k * part;
                     for (int64_t x = 0; x < across; ++x)
                       add_row(from + x * width, w.wide, x, channels, sums);
                   }
                   T* to = dx.row(image, y);
                   for (int64_t x = 0; x < w.wide.size; ++x)
                     for (int64_t c = 0; c < channels; ++c)
                       to[x * dx.by_pixel + c] = convert<T>(sums[x * channels + c]);
                 }
               });
}

/// Finds the largest element of one window, and its index.
template <class T>
void largest(const Images<const T>& x, const Windows& w, int64_t image, int64_t oy, int64_t ox,
             T* y, int32_t* chosen) {
  for (int64_t c = 0; c < x.channels; ++c) chosen[c] = -1;
  inside(w.high, oy, [&](int64_t ky, int64_t iy) {
    inside(w.wide, ox, [&](int64_t kx, int64_t ix) {
      const T* from = x.row(image, iy) + ix * x.by_pixel;
      int32_t k = int32_t(ky * w.wide.window + kx);
      for (int64_t c = 0; c < x.channels; ++c) {
        auto v = load(from[c]), top = load(y[c]);
        if (chosen[c] >= 0 && !(v > top || (v != v && top == top))) continue;
        y[c] = from[c];
        chosen[c] = k;
      }
    });
  });
}

template <class T>
void mean_of(const Images<const T>& x, const Windows& w, int64_t image, int64_t oy, int64_t ox,
             T* y, Accumulator<T>* sums) {
  using A = Accumulator<T>;
  for (int64_t c = 0; c < x.channels; ++c) sums[c] = 0;
  inside(w.high, oy, [&](int64_t, int64_t iy) {
    inside(w.wide, ox, [&](int64_t, int64_t ix) {
      const T* from = x.row(image, iy) + ix * x.by_pixel;
#pragma omp simd
      for (int64_t c = 0; c < x.channels; ++c) sums[c] += load(from[c]);
    });
  });
  for (int64_t c = 0; c < x.channels; ++c) y[c] = convert<T>(sums[c] / A(w.elements()));
}

template <class T>
void pool_images(const Pool2d& p, const Images<const T>& x, T* y, int32_t* chosen) {
  Windows w = p.windows;
  int64_t down = w.high.count(), across = w.wide.count(), c = x.channels;
  bool mean = p.kind == Pool2d::Kind::mean;
  ThreadScratch<Accumulator<T>> scratch(mean ? c : 0);
  parallel_for(x.count * down, pieces_of(across * c * w.elements()),
               [=, &scratch](int64_t begin, int64_t end) {
                 for (int64_t i = begin * across; i < end * across; ++i) {
                   int64_t ox = i % across, oy = i / across % down, image = i / across / down;
                   if (mean) mean_of(x, w, image, oy, ox, y + i * c, scratch.mine());
                   else largest(x, w, image, oy, ox, y + i * c, chosen + i * c);
                 }
               });
}

template <class T>
void pool_images_backward(const Pool2d& p, const T* dy, const int32_t* chosen,
                          const Images<T>& dx) {
  using A = Accumulator<T>;
  Windows w = p.windows;
  int64_t down = w.high.count(), across = w.wide.count(), channels = dx.channels;
  bool mean = p.kind == Pool2d::Kind::mean;
  A share = mean ? A(1) / A(w.elements()) : A(1);
  ThreadScratch<A> scratch(channels);
  parallel_for(dx.count * w.high.size, pieces_of(w.wide.size * channels * w.elements()),
               [=, &scratch](int64_t begin, int64_t end) {
                 A* sums = scratch.mine();
                 for (int64_t i = begin * w.wide.size; i < end * w.wide.size; ++i) {
                   int64_t ix = i % w.wide.size, iy = i / w.wide.size % w.high.size;
                   int64_t image = i / w.wide.size / w.high.size;
                   for (int64_t c = 0; c < channels; ++c) sums[c] = 0;
                   for (int64_t k = 0; k < w.elements(); ++k) {
                     int64_t oy = w.high.reader(iy, k / w.wide.window);
                     int64_t ox = w.wide.reader(ix, k % w.wide.window);
                     if (oy < 0 || ox < 0) continue;
                     int64_t at = ((image * down + oy) * across + ox) * channels;
#pragma omp simd
                     for (int64_t c = 0; c < channels; ++c)
                       sums[c] += mean || chosen[at + c] == k ? share * load(dy[at + c]) : A(0);
                   }
                   T* to = dx.row(image, iy) + ix * dx.by_pixel;
                   for (int64_t c = 0; c < channels; ++c) to[c] = convert<T>(sums[c]);
                 }
               });
}

}  // namespace

void Cpu::patches(const Tensor& x, const Windows& windows, const Tensor& y) {
  visit_float(x.dtype(),
              [&]<class T>() { read_windows<T>(Images<const T>(x), windows, values<T>(y)); });
}

void Cpu::patches_backward(const Tensor& dy, const Windows& windows, const Tensor& dx) {
  visit_float(dx.dtype(),
              [&]<class T>() { add_windows<T>(values<T>(dy), windows, Images<T>(dx)); });
}

void Cpu::pool(const Pool2d& p, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  int32_t* which = p.kind == Pool2d::Kind::max ? values<int32_t>(chosen) : nullptr;
  visit_float(x.dtype(),
              [&]<class T>() { pool_images<T>(p, Images<const T>(x), values<T>(y), which); });
}

void Cpu::pool_backward(const Pool2d& p, const Tensor& dy, const Tensor& chosen, const Tensor& dx) {
  const int32_t* which = p.kind == Pool2d::Kind::max ? values<int32_t>(chosen) : nullptr;
  visit_float(dx.dtype(),
              [&]<class T>() { pool_images_backward<T>(p, values<T>(dy), which, Images<T>(dx)); });
}

}  // namespace triax::host::TRIAX_LEVEL
