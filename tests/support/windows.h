#pragma once
#include "tests/core/kernels.h"
#include "triax/core/shared/conv.h"

/// @file Convolutions and pools as loops over every index, and the shapes to try them at.
namespace triax::test {

struct ConvCase {
  int64_t images, height, width, in, out, groups;
  WindowAxis high = {}, wide = {};  ///< sizes are filled in

  ConvCase(const Shape& x, int64_t out_, WindowAxis high_, WindowAxis wide_, int64_t groups_ = 1)
      : images(x[0]), height(x[1]), width(x[2]), in(x[3]), out(out_), groups(groups_) {
    high = high_, wide = wide_;
    high.size = height, wide.size = width;
  }
  Windows windows() const { return {high, wide}; }
  Shape x() const { return {images, height, width, in}; }
  Shape weight() const { return {out, high.window, wide.window, in / groups}; }
  Shape y(int64_t channels) const { return {images, high.count(), wide.count(), channels}; }
  Shape y() const { return y(out); }
};

inline std::vector<ConvCase> conv_cases() {
  return {
      {{2, 5, 4, 3}, 2, {0, 3, 1, 1}, {0, 3, 1, 1}},
      {{1, 1, 1, 1}, 1, {0, 1}, {0, 1}},
      {{3, 4, 5, 6}, 4, {0, 1}, {0, 1}},
      {{3, 4, 5, 6}, 4, {0, 1}, {0, 1}, 2},
      {{3, 7, 6, 5}, 7, {0, 1, 2}, {0, 1, 3}},
      {{2, 9, 8, 4}, 6, {0, 3, 2, 1}, {0, 2, 3, 1}, 2},
      {{2, 8, 9, 4}, 8, {0, 3, 1, 2, 2}, {0, 2, 2, 2, 3}, 4},
      {{1, 3, 11, 2}, 3, {0, 1}, {0, 7, 1, 3}},
      {{70, 6, 6, 1}, 2, {0, 4, 3}, {0, 4, 3, 2}},
      {{5, 33, 31, 2}, 3, {0, 3, 1, 1}, {0, 3, 1, 1}},  // several pieces of images
      {{0, 4, 4, 2}, 3, {0, 3}, {0, 3}},
      {{60, 6, 6, 4}, 4, {0, 1}, {0, 1}, 2},
      {{60, 6, 6, 4}, 4, {0, 3, 1, 1}, {0, 3, 1, 1}, 2},
      {{2, 8, 9, 2}, 2, {0, 3, 1, 1, 2}, {0, 2, 2, 1, 3}},  // pools with dilation
      // 3 x 3 at stride 1 with many channels.
      {{3, 5, 4, 17}, 19, {0, 3, 1, 1}, {0, 3, 1, 1}},
      {{2, 4, 7, 16}, 33, {0, 3}, {0, 3, 1, 2}},
      {{70, 6, 6, 16}, 16, {0, 3, 1, 1}, {0, 3, 1, 1}},   // several pieces of images
      {{190, 6, 6, 16}, 16, {0, 3, 1, 1}, {0, 3, 1, 1}},  // threads of their own
  };
}

/// f(x offset, y row [image, oy, ox], ky, kx) for everything that windows read inside the images.
template <class F> void each_read(const ConvCase& c, F f) {
  for (int64_t n = 0; n < c.images; ++n)
    for (int64_t oy = 0; oy < c.high.count(); ++oy)
      for (int64_t ox = 0; ox < c.wide.count(); ++ox)
        for (int64_t ky = 0; ky < c.high.window; ++ky)
          for (int64_t kx = 0; kx < c.wide.window; ++kx) {
            int64_t iy = oy * c.high.stride - c.high.padding + ky * c.high.dilation;
            int64_t ix = ox * c.wide.stride - c.wide.padding + kx * c.wide.dilation;
            if (iy < 0 || iy >= c.height || ix < 0 || ix >= c.width) continue;
            f((n * c.height + iy) * c.width + ix, (n * c.high.count() + oy) * c.wide.count() + ox,
              ky * c.wide.window + kx);
          }
}

/// f(x, w, y): the element numbers of each product that a convolution sums.
template <class F> void each_product(const ConvCase& c, F f) {
  int64_t in = c.in / c.groups, out = c.out / c.groups, elements = c.high.window * c.wide.window;
  each_read(c, [&](int64_t pixel, int64_t row, int64_t k) {
    for (int64_t o = 0; o < c.out; ++o)
      for (int64_t i = 0; i < in; ++i)
        f(size_t(pixel * c.in + o / out * in + i), size_t((o * elements + k) * in + i),
          size_t(row * c.out + o));
  });
}

}  // namespace triax::test
