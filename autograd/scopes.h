#pragma once
#include "triax/core/tensor.h"

// What holds on a thread while an object lives.
namespace triax::autograd {

/// While it lives, an `alike` one makes `linear` and `matmul` on this thread compute an element of
/// a product from its row and its column alone, bit for bit, however few rows or columns there are
/// beside it. (Kernels have faster ways for few, which add in another order.) Backward and
/// recomputation of an op use what held for its forward.
class RowsAlike : Scoped<bool> {
 public:
  explicit RowsAlike(bool alike) : Scoped(now_, alike) {}
  /// Returns the setting of the innermost one on this thread; false if there is none.
  static bool now() { return now_; }

 private:
  static inline thread_local bool now_ = false;
};

/// While it lives, it notes the leaves that ops use without recording, in order of first use: their
/// hooks must fire in the same order on every rank, so the order cannot be that of addresses.
class Touched : Immovable {
 public:
  Touched();
  ~Touched();
  const Tensors& leaves() const { return leaves_; }

 private:
  friend void note_touched(const Tensors& used);
  Tensors leaves_;
  Touched* outer_;
};

void note_touched(const Tensors& used);

/// True while recompute() runs its function a second time, in backward, on this thread.
bool recomputing();

}  // namespace triax::autograd
