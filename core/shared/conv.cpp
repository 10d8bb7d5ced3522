#include "triax/core/shared/conv.h"

#include <algorithm>

// Convolutions as matrix products with patches (Chellapilla, Puri and Simard, "High performance
// convolutional neural networks for document processing", 2006), a few images at a time: small ones
// have patches that stay in a cache, and memory for those of all is never needed.

namespace triax {
namespace {

/// The least rows of a product: with fewer, packing weights takes most of the time.
constexpr int64_t least_rows = 1024;

/// Returns the number of images whose patches are made together.
int64_t images_at_once(const Conv2d& c) {
  return std::clamp<int64_t>((least_rows - 1) / c.windows.of_image() + 1, 1,
                             std::max<int64_t>(1, c.x.size(0)));
}
int64_t columns_of(const Conv2d& c) { return c.windows.elements() * c.weight.size(3); }

/// The part of a convolution made at a time: images [first, first + images), of one group.
struct Piece {
  int64_t first, images, group;
};

class Pieces {
 public:
  explicit Pieces(const Conv2d& c)
      : c_(c), in_(c.weight.size(3)), out_(c.weight.size(0) / c.groups), each_(images_at_once(c)) {
    if (!alone())
      room_ = empty({each_ * c.windows.of_image(), columns()}, c.x.dtype(), c.x.device());
  }

  int64_t columns() const { return columns_of(c_); }

  /// Calls f(piece) for every piece, image by image.
  template <class F> void each(F f) const {
    for (int64_t i = 0; i < c_.x.size(0); i += each_)
      for (int64_t g = 0; g < c_.groups; ++g) f(Piece{i, std::min(each_, c_.x.size(0) - i), g});
  }

  /// Returns the piece's images and channels of a tensor like x.
  Tensor of_x(const Tensor& x, const Piece& p) const {
    return x.narrow(0, p.first, p.images).narrow(3, p.group * in_, in_);
  }
  /// Returns the piece's part of a tensor like y as a matrix [rows, out / groups].
  Tensor of_y(const Tensor& y, const Piece& p) const {
    int64_t rows = c_.windows.of_image(), all = y.size(3);
    Tensor matrix = y.view({y.size(0) * rows, all});
    return matrix.narrow(0, p.first * rows, p.images * rows).narrow(1, p.group * out_, out_);
  }
  /// Returns the group's part of a tensor like the weight as a matrix [out / groups, columns].
  Tensor of_weight(const Tensor& w, const Piece& p) const {
    return w.view({w.size(0), columns()}).narrow(0, p.group * out_, out_);
  }

  /// Returns working memory for a matrix of patches [rows, columns].
  Tensor room(const Piece& p) const { return room_.narrow(0, 0, p.images * c_.windows.of_image()); }
  /// Returns the patches of x; a view of x where each window is one element.
  Tensor patches(Backend& on, const Piece& p) const {
    if (alone()) return matrix(c_.x, p);
    Tensor to = room(p);
    on.patches(of_x(c_.x, p), c_.windows, to);
    return to;
  }
  /// Returns the piece of a tensor like x as a matrix; only where windows are single elements.
  Tensor matrix(const Tensor& x, const Piece& p) const {
    int64_t rows = c_.windows.of_image();
    return x.view({x.size(0) * rows, x.size(3)})
        .narrow(0, p.first * rows, p.images * rows)
        .narrow(1, p.group * in_, in_);
  }
  bool alone() const { return c_.windows.are_the_image(); }

 private:
  const Conv2d& c_;
  int64_t in_, out_, each_;
  Tensor room_;
};

}  // namespace

bool Windows::are_the_image() const {
  auto plain = [](const WindowAxis& a) { return a.window == 1 && a.stride == 1 && a.padding == 0; };
  return plain(high) && plain(wide);
}

bool tiles_are_faster(const Conv2d& c) {
  constexpr int64_t least_channels = 16;
  auto fits = [](const WindowAxis& a) {
    return a.window == 3 && a.stride == 1 && a.dilation == 1 && a.padding <= 2 && a.count() > 1;
  };
  return (c.x.dtype() == f32 || c.x.dtype() == f64) && c.x.numel() > 0 && c.groups == 1 &&
         fits(c.windows.high) && fits(c.windows.wide) &&
         std::min(c.weight.size(0), c.weight.size(3)) >= least_channels;
}

int64_t elements_of_tiles(const Conv2d& c) {
  TileGrid grid(c.windows);
  int64_t tiles = std::min(grid.images_at_once(), c.x.size(0)) * grid.of_image();
  int64_t in = c.weight.size(3), out = c.weight.size(0);
  return 16 * (in * out + tiles * (in + out));
}

int64_t elements_of_patches(const Conv2d& c) {
  if (c.windows.are_the_image()) return 0;
  return images_at_once(c) * c.windows.of_image() * columns_of(c);
}

void Backend::conv2d(const Conv2d& c, const Tensor& y) {
  Pieces pieces(c);
  pieces.each([&](const Piece& p) {
    matmul({.a = pieces.patches(*this, p),
            .b = pieces.of_weight(c.weight, p).transpose(0, 1),
            .c = pieces.of_y(y, p)});
  });
}

void Backend::conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) {
  Pieces pieces(c);
  pieces.each([&](const Piece& p) {
    Tensor d = pieces.alone() ? pieces.matrix(dx, p) : pieces.room(p);
    matmul({.a = pieces.of_y(dy, p), .b = pieces.of_weight(c.weight, p), .c = d});
    if (!pieces.alone()) patches_backward(d, c.windows, pieces.of_x(dx, p));
  });
}

void Backend::conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                                     Write write) {
  Pieces pieces(c);
  if (c.x.numel() == 0 && write == Write::set) fill(dw, 0);
  pieces.each([&](const Piece& p) {
    matmul({.a = pieces.of_y(dy, p).transpose(0, 1),
            .b = pieces.patches(*this, p),
            .c = pieces.of_weight(dw, p),
            .write = p.first == 0 ? write : Write::add});
  });
}

}  // namespace triax
