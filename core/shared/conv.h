#pragma once
#include "triax/core/backend.h"

namespace triax {

/// Windows along one dim of images. Element k of window o reads at o * stride - padding + k *
/// dilation; positions outside of [0, size) are padding.
struct WindowAxis {
  int64_t size = 1, window = 1, stride = 1, padding = 0, dilation = 1;

  TRIAX_HD int64_t count() const {
    return (size + 2 * padding - dilation * (window - 1) - 1) / stride + 1;
  }
  TRIAX_HD int64_t at(int64_t o, int64_t k) const { return o * stride - padding + k * dilation; }
  /// Returns the window whose element k reads at i, or -1.
  TRIAX_HD int64_t reader(int64_t i, int64_t k) const {
    int64_t from_first = i + padding - k * dilation, o = from_first / stride;
    return from_first >= 0 && o * stride == from_first && o < count() ? o : -1;
  }
};

/// Windows over the two middle dims of images [n, height, width, channels].
struct Windows {
  WindowAxis high, wide;

  TRIAX_HD int64_t elements() const { return high.window * wide.window; }
  int64_t of_image() const { return high.count() * wide.count(); }
  /// True if every window is one element, and every element a window.
  bool are_the_image() const;
};

/// Images [n, height, width, channels] whose channels are neighbours, as kernels walk them.
template <class T> struct Images {
  T* first;
  int64_t count, channels, by_image, by_row, by_pixel;

  explicit __attribute__((always_inline)) Images(const Tensor& x)
      : first(static_cast<T*>(x.data())),
        count(x.size(0)),
        channels(x.size(3)),
        by_image(x.strides()[0]),
        by_row(x.strides()[1]),
        by_pixel(x.strides()[2]) {}
  TRIAX_HD T* row(int64_t image, int64_t y) const { return first + image * by_image + y * by_row; }
};

/// Two-dimensional cross-correlation, as every framework's convolution is: y [n, oh, ow, out] of x
/// [n, h, w, in] and weight [out, kh, kw, in / groups]. Output channel o of group g sums over the
/// window's elements and the channels of g. All contiguous, of one float dtype.
struct Conv2d {
  Tensor x, weight;
  Windows windows;
  int64_t groups = 1;
};

/// Tiles of 2 x 2 results of an image, as convolutions on CPUs compute them
/// (core/cpu/images/winograd.cpp).
struct TileGrid {
  int64_t down, across;
  TRIAX_HD explicit TileGrid(const Windows& w)
      : down((w.high.count() + 1) / 2), across((w.wide.count() + 1) / 2) {}
  TRIAX_HD int64_t of_image() const { return down * across; }
  /// Returns the most images computed together: of fewer tiles, weights are packed too often.
  TRIAX_HD int64_t images_at_once() const { return (512 - 1) / of_image() + 1; }
  /// Returns the most images for a thread that computes alone; threads() is 1 if there are too few.
  TRIAX_HD int64_t images_of_a_thread() const { return (images_at_once() + 1) / 2; }
  TRIAX_HD int64_t threads(int64_t images, int64_t most) const {
    return most > 1 && images >= 2 * most * images_of_a_thread() ? most : 1;
  }
};
/// True if tiles are faster than products with patches: windows of 3 x 3 at stride 1 and enough
/// channels. Not in 16 bits, where transformed tiles would be rounded.
bool tiles_are_faster(const Conv2d& c);
/// Returns the elements of working memory that each way takes; tiles for up to two threads, half
/// each.
int64_t elements_of_tiles(const Conv2d& c);
int64_t elements_of_patches(const Conv2d& c);

/// The largest element or the mean of every window: y [n, oh, ow, c] of x [n, h, w, c]. Padding is
/// never the largest; in a mean it counts as zeros. NaN is larger than all numbers.
struct Pool2d {
  enum class Kind { max, mean } kind;
  Windows windows;
};

}  // namespace triax
