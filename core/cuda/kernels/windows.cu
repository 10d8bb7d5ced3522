#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/shared/conv.h"

// A thread for each element that is written.

namespace triax::cuda::TRIAX_TARGET {

/// Element `at` of the patches [n, oh, ow, kh, kw, c].
template <class T> struct PatchElement {
  Images<const T> x;
  Windows windows;
  T* y;

  TRIAX_HD void operator()(const int64_t (&at)[1]) const {
    const WindowAxis &high = windows.high, &wide = windows.wide;
    int64_t c = at[0] % x.channels, k = at[0] / x.channels % windows.elements();
    int64_t o = at[0] / x.channels / windows.elements(), row = o / wide.count();
    int64_t iy = high.at(row % high.count(), k / wide.window);
    int64_t ix = wide.at(o % wide.count(), k % wide.window);
    bool inside = iy >= 0 && iy < high.size && ix >= 0 && ix < wide.size;
    const T* from = x.row(row / high.count(), inside ? iy : 0) + c;
    y[at[0]] = inside ? from[ix * x.by_pixel] : T(0.0f);
  }
};

/// Calls f(window, k) for each window that reads an element of dx [n, h, w, c]; k is the element's
/// place in it, and windows count over all images.
template <class F>
TRIAX_HD void each_reader(const Windows& windows, int64_t image, int64_t iy, int64_t ix, F f) {
  const WindowAxis &high = windows.high, &wide = windows.wide;
  for (int64_t ky = 0; ky < high.window; ++ky) {
    int64_t oy = high.reader(iy, ky);
    for (int64_t kx = 0; oy >= 0 && kx < wide.window; ++kx)
      if (int64_t ox = wide.reader(ix, kx); ox >= 0)
        f((image * high.count() + oy) * wide.count() + ox, ky * wide.window + kx);
  }
}

/// Element `at` of dx: of patches, or of a pool: of the largest (`chosen`) or of means (`share`).
template <class T> struct WindowGradient {
  const T* dy;
  const int32_t* chosen;  // or null
  Windows windows;
  Images<T> dx;
  bool pools;
  Accumulator<T> share;

  TRIAX_HD void operator()(const int64_t (&at)[1]) const {
    int64_t channels = dx.channels, c = at[0] % channels, pixel = at[0] / channels;
    int64_t ix = pixel % windows.wide.size, row = pixel / windows.wide.size;
    int64_t iy = row % windows.high.size, image = row / windows.high.size;
    Accumulator<T> sum = 0;
    each_reader(windows, image, iy, ix, [&](int64_t window, int64_t k) {
      int64_t of = pools ? window : window * windows.elements() + k;
      if (!chosen || chosen[of * channels + c] == k) sum += share * load(dy[of * channels + c]);
    });
    dx.row(image, iy)[ix * dx.by_pixel + c] = convert<T>(sum);
  }
};

/// Element `at` of y [n, oh, ow, c].
template <class T> struct PoolElement {
  Images<const T> x;
  Windows windows;
  T* y;
  int32_t* chosen;  // null: the mean

  TRIAX_HD void operator()(const int64_t (&at)[1]) const {
    using A = Accumulator<T>;
    const WindowAxis &high = windows.high, &wide = windows.wide;
    int64_t c = at[0] % x.channels, o = at[0] / x.channels, row = o / wide.count();
    A sum = 0, top = 0;
    int32_t which = -1;
    for (int64_t k = 0; k < windows.elements(); ++k) {
      int64_t iy = high.at(row % high.count(), k / wide.window);
      int64_t ix = wide.at(o % wide.count(), k % wide.window);
      if (iy < 0 || iy >= high.size || ix < 0 || ix >= wide.size) continue;
      A v = load(x.row(row / high.count(), iy)[ix * x.by_pixel + c]);
      sum += v;
      bool larger = which < 0 || v > top || (v != v && top == top);
      top = larger ? v : top;
      which = larger ? int32_t(k) : which;
    }
    if (chosen) chosen[at[0]] = which;
    y[at[0]] = convert<T>(chosen ? top : sum / A(windows.elements()));
  }
};

namespace {

/// Launches body({i}) for i in [0, n).
template <class Body> void launch_count(Stream stream, int64_t n, const Body& body) {
  Strides<1> all;
  all.push(n, {1});
  launch_each(stream, all, body);
}

}  // namespace

void Cuda::patches(const Tensor& x, const Windows& windows, const Tensor& y) {
  visit_float(x.dtype(), [&]<class T>() {
    launch_count(stream(), y.numel(), PatchElement<T>{Images<const T>(x), windows, values<T>(y)});
  });
}

void Cuda::patches_backward(const Tensor& dy, const Windows& windows, const Tensor& dx) {
  visit_float(dx.dtype(), [&]<class T>() {
    launch_count(stream(), dx.numel(),
                 WindowGradient<T>{values<T>(dy), nullptr, windows, Images<T>(dx), false, 1});
  });
}

void Cuda::pool(const Pool2d& p, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  bool max = p.kind == Pool2d::Kind::max;
  visit_float(x.dtype(), [&]<class T>() {
    launch_count(stream(), y.numel(),
                 PoolElement<T>{Images<const T>(x), p.windows, values<T>(y),
                                max ? values<int32_t>(chosen) : nullptr});
  });
}

void Cuda::pool_backward(const Pool2d& p, const Tensor& dy, const Tensor& chosen,
                         const Tensor& dx) {
  bool max = p.kind == Pool2d::Kind::max;
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch_count(
        stream(), dx.numel(),
        WindowGradient<T>{values<T>(dy), max ? values<int32_t>(chosen) : nullptr, p.windows,
                          Images<T>(dx), true, max ? A(1) : A(1) / A(p.windows.elements())});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
