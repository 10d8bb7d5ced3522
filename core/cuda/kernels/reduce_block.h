#pragma once
#include "triax/core/cuda/runtime/thread.h"
#include "triax/core/numbers/math.h"

namespace triax::cuda::TRIAX_TARGET {

/// Shared memory of reduce_block().
template <class A> struct Partials { A of_warp[32]; };
template <class A> struct PairOfPartials { Partials<A> a, b; };

/// The larger of two numbers; NaN is passed over. On a GPU one instruction, unlike a > b ? a : b.
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

/// Reduces by op over the 32 values of a warp; every lane has the result. The tree is the same on
/// every lane, so that with an `op` that commutes all get equal bits.
template <class A, class Op> TRIAX_HD A reduce_warp(const Thread& t, A value, Op op) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, t.shuffle_xor(value, mask));
  return value;
}

/// Reduces by op over the values of a block's threads; every thread has the result. All threads
/// must call it; the partials may be used again at once.
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

/// Reduces two values, with the barriers of one.
template <class A, class Op>
TRIAX_HD void reduce_block(const Thread& t, A& a, A& b, Op op, PairOfPartials<A>& partials) {
  a = reduce_warp(t, a, op);
  b = reduce_warp(t, b, op);
  if (t.lane() == 0) partials.a.of_warp[t.warp()] = a, partials.b.of_warp[t.warp()] = b;
  t.sync();
  bool one = t.lane() < t.warps();
  a = reduce_warp(t, one ? partials.a.of_warp[t.lane()] : Op::template identity<A>(), op);
  b = reduce_warp(t, one ? partials.b.of_warp[t.lane()] : Op::template identity<A>(), op);
  t.sync();
}

/// The shared memory of join_warps(): the values of 32 * size columns of each warp of a block of
/// 256 threads.
template <class A, int size> struct OfWarps {
  static constexpr int warps = 8;
  A at[warps][32 * size];
};

/// Joins `mine`, columns [lane * size, lane * size + size) of this warp: calls put(column, op over
/// the warps in order) once for every column. All threads must call it; `of_warps` may not be used
/// again.
template <class A, int size, class Op, class Put>
TRIAX_HD void join_warps(const Thread& t, const A (&mine)[size], Op op, OfWarps<A, size>& of_warps,
                         Put put) {
#pragma unroll
  for (int k = 0; k < size; ++k)  // transposed: neighbours write to different banks
    of_warps.at[t.warp()][k * 32 + t.lane()] = mine[k];
  t.sync();
  for (int column = t.id; column < 32 * size; column += t.threads) {
    A value = Op::template identity<A>();
#pragma unroll
    for (const auto& warp : of_warps.at)
      value = op(value, warp[column % size * 32 + column / size]);
    put(column, value);
  }
}

}  // namespace triax::cuda::TRIAX_TARGET
