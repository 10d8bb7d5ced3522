#pragma once
#include "triax/core/backend.h"

namespace triax::host {

/// The linear maps of convolutions by tiles (winograd.cpp).
enum class TileMap { inputs, outputs, output_gradients, weights, turned_weights, weight_gradients };

/// The parts of the CPU backend that all instruction levels share.
class Base : public Backend {
 public:
  ~Base() override;
  /// Returns this thread's cache of blocks. Blocks freed on another thread come back to it.
  std::shared_ptr<Allocator> allocator() override;

  void conv2d(const Conv2d& c, const Tensor& y) override;
  void conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) override;
  void conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                              Write write) override;
  /// Maps between images [n, h, w, channels] that `w` reads and their tiles [16, tiles, channels],
  /// or between weights [out, 3, 3, in] and [16, out, in]; f32 or f64. Weight gradients are written
  /// as `write` says, all else is set.
  virtual void map_tiles(TileMap which, const Windows& w, const Tensor& from, const Tensor& to,
                         Write write) = 0;
};

/// Returns a block of that cache (Base::allocator), for scratch.h; free it on this thread.
void* allocate_scratch(size_t bytes);
void free_scratch(void* data, size_t bytes) noexcept;

}  // namespace triax::host
