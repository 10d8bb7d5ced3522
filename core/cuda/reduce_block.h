#pragma once
#include "core/cuda/thread.h"
#include "core/math.h"

namespace triax::cuda::TRIAX_TARGET {

/// Shared memory of reduce_block().
template <class A> struct Partials { A of_warp[32]; };

/// NaN is passed over. On a GPU one instruction, which a > b ? a : b is not.
TRIAX_HD float larger(float a, float b) { return __builtin_fmaxf(a, b); }
TRIAX_HD double larger(double a, double b) { return __builtin_fmax(a, b); }

struct Sum {
  template <class A> TRIAX_HD static A identity() { return A(0); }
  template <class A> TRIAX_HD A operator()(A a, A b) const { return a + b; }
};
/// NaN is passed over.
struct Max {
  template <class A> TRIAX_HD static A identity() { return A(-__builtin_inf()); }
  template <class A> TRIAX_HD A operator()(A a, A b) const { return larger(a, b); }
};

/// op over the 32 values of a warp; every lane has it. The tree is the same on every lane, so
/// that with an `op` that commutes all get equal bits.
template <class A, class Op> TRIAX_HD A reduce_warp(const Thread& t, A value, Op op) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, t.shuffle_xor(value, mask));
  return value;
}

/// op over the values of a block's threads; every thread has it. All threads must call it; the
/// partials may be used again at once.
template <class A, class Op>
TRIAX_HD A reduce_block(const Thread& t, A value, Op op, Partials<A>& partials) {
  value = reduce_warp(t, value, op);
  if (t.lane() == 0) partials.of_warp[t.warp()] = value;
  t.sync();
  value = t.lane() < t.warps() ? partials.of_warp[t.lane()] : Op::template identity<A>();
  value = reduce_warp(t, value, op);
  t.sync();
  return value;
}

}  // namespace triax::cuda::TRIAX_TARGET
