#pragma once
#include <utility>

namespace triax::autograd {

/// Says of what this thread computes while one lives whether `linear` and `matmul` make an element
/// of a matrix product from its row and its column alone, bit for bit: however few rows there are
/// beside it. Kernels have faster ways for few rows, which add in another order. What backward or
/// recomputation makes of an op goes the way that its forward went.
class RowsAlike {
 public:
  explicit RowsAlike(bool alike) : outer_(std::exchange(now_, alike)) {}
  ~RowsAlike() { now_ = outer_; }
  RowsAlike(const RowsAlike&) = delete;
  RowsAlike& operator=(const RowsAlike&) = delete;

  /// Returns what the innermost on this thread says; false if there is none.
  static bool now() { return now_; }

 private:
  static inline thread_local bool now_ = false;
  bool outer_;
};

}  // namespace triax::autograd
