#pragma once
#include "triax/core/scoped.h"

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

}  // namespace triax::autograd
