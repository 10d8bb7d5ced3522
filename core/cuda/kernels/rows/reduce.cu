#include "triax/core/cuda/kernels/rows/reduce.h"
#include "triax/core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

/// True if columns are read by warps, which have several rows to read: `inner` has an element for
/// each lane. A pack for each asks for more.
bool tall(const Extent& e) { return e.inner >= 32 && e.reduced >= 64; }

// Uses as many pieces as make a few blocks for every processor of a large GPU, of 32 rows at least.
// They do not depend on where x lies, and neither does the order of sums.
template <class Op, int size, Write write, class T, class U>
void reduce_tall(const Queue& q, const T* x, const Extent& extent, U* y) {
  using A = Accumulator<T>;
  int64_t blocks = extent.outer * ((extent.inner - 1) / (32 * pack_size<T>()) + 1);
  Pieces e{extent, fn::min((extent.reduced + 31) / 32, (1056 + blocks - 1) / blocks)};
  Scratch<A> parts(q.memory, e.outer * e.pieces * e.inner);
  using Kernel = ReduceTallColumns<Op, T, size>;
  int64_t groups = (e.inner - 1) / Kernel::columns + 1;
  launch(q.stream, {e.outer * e.pieces * groups}, Kernel{x, parts.data(), e});
  using Join = JoinColumns<Op, A, U, write>;
  launch(q.stream, {Join::blocks(e)}, Join{parts.data(), y, e});
}

template <class Op, Write write, class T, class U>
void reduce(const Queue& q, const T* x, const Extent& extent, U* y) {
  using A = Accumulator<T>;
  int64_t outputs = extent.outer * extent.inner;
  if (outputs == 0) return;
  if (tall(extent) && extent.inner >= 16 * pack_size<T>() && rows_aligned(extent.inner, x))
    return reduce_tall<Op, pack_size<T>(), write>(q, x, extent, y);
  if (tall(extent)) return reduce_tall<Op, 1, write>(q, x, extent, y);
  int shift = extent.inner == 1 ? 12 : 6;
  Pieces e{extent, fn::max<int64_t>(1, fn::min<int64_t>(256, extent.reduced >> shift))};
  Scratch<A> parts(q.memory, outputs * e.pieces);
  if (e.inner == 1) launch(q.stream, {e.outer * e.pieces}, ReduceRows<Op, T>{x, parts.data(), e});
  else
    launch(q.stream, {(outputs * e.pieces + 127) / 128}, ReduceColumns<Op, T>{x, parts.data(), e});
  launch(q.stream, {(outputs + 127) / 128}, JoinPieces<Op, A, U, write>{parts.data(), y, e});
}

// Reduces the innermost group first, then the groups in front of it from the partial result.
template <class Op, Write write, class T, class U>
void reduce_dims(const Queue& q, const Tensor& x, const Tensor& y, const T* from, ReductionCut c) {
  using A = Accumulator<T>;
  if (!c.reduces) return reduce<Op, write>(q, from, c.extent, values<U>(y));
  Scratch<A> partial(q.memory, c.extent.outer * c.extent.inner);
  reduce<Op, Write::set>(q, from, c.extent, partial.data());
  ReductionCut next = innermost(x, y, c.front);
  next.extent.inner *= c.extent.inner;
  reduce_dims<Op, write, A, U>(q, x, y, partial.data(), next);
}

}  // namespace

void Cuda::sum(const Tensor& x, const Tensor& y, Write write) {
  Queue q{stream(), allocator()};
  visit_float(x.dtype(), [&]<class T>() {
    visit_sum<T>(y.dtype(), [&]<class U>() {
      visit_write(write, [&]<Write w>() {
        reduce_dims<Sum, w, T, U>(q, x, y, values<T>(x), innermost(x, y, x.rank()));
      });
    });
  });
}

void Cuda::max(const Tensor& x, const Tensor& y) {
  Queue q{stream(), allocator()};
  visit_float(x.dtype(), [&]<class T>() {
    reduce_dims<MaxOrNan, Write::set, T, T>(q, x, y, values<T>(x), innermost(x, y, x.rank()));
  });
}

void Cuda::squares(const Tensor& x, const Tensor& out) {
  int64_t n = x.numel();
  if (n == 0) return;
  visit_float(x.dtype(), [&]<class T>() {
    constexpr int64_t piece = SquaresOfPieces<T>::piece;
    int64_t pieces = (n + piece - 1) / piece;
    Scratch<double> parts(allocator(), 2 * pieces);
    launch(stream(), {pieces}, SquaresOfPieces<T>{values<T>(x), parts.data(), n});
    launch(stream(), {}, JoinSquares{parts.data(), values<double>(out), pieces});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
