#include <algorithm>

#include "triax/core/cpu/base.h"
#include "triax/core/shared/conv.h"
#include "triax/core/shared/team.h"

// Convolutions by windows of 3 x 3 at stride 1: 2 x 2 results of a tile of 4 x 4 inputs d take 16
// products in place of 36 (minimal filtering F(2 x 2, 3 x 3): Winograd, "Arithmetic complexity of
// computations", 1980; Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016,
// section 4):
//
//   y = A' [(G g G') * (B' d B)] A
//
// with * element by element. Summed over channels it is 16 matrix products. The gradient of the
// input is a convolution of dy with weights rotated by 180 degrees; that of the weights the adjoint
// of the above, summed over tiles: dg = G' [(A dy A') * (B' d B)] G.
namespace triax::host {
namespace {

constexpr int64_t points = 16;  // of a transformed tile

/// A convolution, a few images at a time: their tiles stay in a cache.
class Winograd {
 public:
  Winograd(Base& on, const Windows& windows) : on_(on), windows_(windows), grid_(windows) {}

  /// Returns a weight as [points, out, in].
  Tensor weights(const Tensor& w, TileMap which) const {
    Tensor u = empty({points, w.size(0), w.size(3)}, w.dtype(), cpu);
    on_.map_tiles(which, windows_, w, u, Write::set);
    return u;
  }

  /// Computes y of x; u [points, in, out], of any strides. With enough images, threads take their
  /// own and wait for each other only at the end; else they share every product. The number of
  /// images in a piece depends on shapes alone, so that bits do not depend on the threads.
  void forward(const Tensor& x, const Tensor& u, const Tensor& y) const {
    int64_t count = x.size(0), each = std::min(count, grid_.images_of_a_thread());
    int64_t threads = grid_.threads(count, threads_here());
    int64_t of_image = points * grid_.of_image();
    Tensor v = empty({threads, each * of_image * x.size(3)}, x.dtype(), cpu);
    Tensor m = empty({threads, each * of_image * y.size(3)}, x.dtype(), cpu);
    in_turns((count + each - 1) / each, threads, [&](int64_t piece, int64_t share) {
      int64_t first = piece * each, images = std::min(each, count - first);
      auto part = [&](const Tensor& room, int64_t channels) {
        return room.narrow(0, share, 1)
            .narrow(1, 0, images * of_image * channels)
            .view({points, images * grid_.of_image(), channels});
      };
      Tensor inputs = part(v, x.size(3)), outputs = part(m, y.size(3));
      on_.map_tiles(TileMap::inputs, windows_, x.narrow(0, first, images), inputs, Write::set);
      on_.matmul({.a = inputs, .b = u, .c = outputs});
      on_.map_tiles(TileMap::outputs, windows_, outputs, y.narrow(0, first, images), Write::set);
    });
  }

  void backward_weight(const Tensor& x, const Tensor& dy, const Tensor& dw, Write write) const {
    Tensor du = empty({points, dw.size(0), dw.size(3)}, dw.dtype(), cpu);
    each_piece(x, [&](int64_t first, int64_t images) {
      Tensor d = tiles(TileMap::output_gradients, dy.narrow(0, first, images));
      on_.matmul({.a = d.transpose(1, 2),
                  .b = tiles(TileMap::inputs, x.narrow(0, first, images)),
                  .c = du,
                  .write = first == 0 ? Write::set : Write::add});
    });
    on_.map_tiles(TileMap::weight_gradients, windows_, du, dw, write);
  }

 private:
  /// Calls f(first image, images) for every piece.
  template <class F> void each_piece(const Tensor& x, F f) const {
    int64_t count = x.size(0), each = grid_.images_at_once();
    for (int64_t i = 0; i < count; i += each) f(i, std::min(each, count - i));
  }

  /// Returns the tiles of images, [points, tiles, channels].
  Tensor tiles(TileMap which, const Tensor& x) const {
    Tensor v = empty({points, x.size(0) * grid_.of_image(), x.size(3)}, x.dtype(), cpu);
    on_.map_tiles(which, windows_, x, v, Write::set);
    return v;
  }

  Base& on_;
  Windows windows_;
  TileGrid grid_;
};

/// Returns the windows by which the gradient of x reads that of y.
Windows turned(Windows w) {
  for (WindowAxis* a : {&w.high, &w.wide}) {
    int64_t size = a->count();
    *a = {.size = size, .window = 3, .padding = 2 - a->padding};
  }
  return w;
}

}  // namespace

void Base::conv2d(const Conv2d& c, const Tensor& y) {
  if (!tiles_are_faster(c)) return Backend::conv2d(c, y);
  Winograd winograd(*this, c.windows);
  winograd.forward(c.x, winograd.weights(c.weight, TileMap::weights).transpose(1, 2), y);
}

void Base::conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) {
  if (!tiles_are_faster(c)) return Backend::conv2d_backward_input(c, dy, dx);
  Winograd winograd(*this, turned(c.windows));
  winograd.forward(dy, winograd.weights(c.weight, TileMap::turned_weights), dx);
}

void Base::conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                                  Write write) {
  if (!tiles_are_faster(c)) return Backend::conv2d_backward_weight(c, dy, dw, write);
  Winograd(*this, c.windows).backward_weight(c.x, dy, dw, write);
}

}  // namespace triax::host
