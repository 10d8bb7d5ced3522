#include "core/cuda/kernels/reduce.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

struct Queue {
  Stream stream;
  std::shared_ptr<Allocator> memory;
};

template <class Op, bool add, class T, class U>
void reduce(const Queue& q, const T* x, Extent e, U* y) {
  using A = Accumulator<T>;
  int64_t outputs = e.outer * e.inner;
  if (outputs == 0) return;
  e.pieces = fn::max<int64_t>(1, fn::min<int64_t>(256, e.reduced >> (e.inner == 1 ? 12 : 6)));
  Scratch<A> parts(q.memory, outputs * e.pieces);
  if (e.inner == 1) launch(q.stream, {e.outer * e.pieces}, ReduceRows<Op, T>{x, parts.data(), e});
  else
    launch(q.stream, {(outputs * e.pieces + 127) / 128}, ReduceColumns<Op, T>{x, parts.data(), e});
  launch(q.stream, {(outputs + 127) / 128}, JoinPieces<Op, A, U, add>{parts.data(), y, e});
}

// Where the innermost group of neighbouring reduced dims lies, and what remains in front of it.
struct Cut {
  Extent extent;
  int front;     // dims in front of the group
  bool reduces;  // some of those are reduced too
};

Cut innermost(const Tensor& x, const Tensor& y, int rank) {
  auto reduced = [&](int d) { return y.size(d) == 1 && x.size(d) != 1; };
  Cut c{{1, 1, 1, 1}, rank, false};
  int d = rank - 1;
  for (; d >= 0 && !reduced(d); --d) c.extent.inner *= x.size(d);
  for (; d >= 0 && (reduced(d) || x.size(d) == 1); --d) c.extent.reduced *= x.size(d);
  c.front = d + 1;
  for (; d >= 0; --d) {
    c.extent.outer *= x.size(d);
    c.reduces = c.reduces || reduced(d);
  }
  return c;
}

// The innermost group first; the groups in front of it from the partial result.
template <class Op, bool add, class T, class U>
void reduce_dims(const Queue& q, const Tensor& x, const Tensor& y, const T* from, Cut c) {
  using A = Accumulator<T>;
  if (!c.reduces) return reduce<Op, add>(q, from, c.extent, values<U>(y));
  Scratch<A> partial(q.memory, c.extent.outer * c.extent.inner);
  reduce<Op, false>(q, from, c.extent, partial.data());
  Cut next = innermost(x, y, c.front);
  next.extent.inner *= c.extent.inner;
  reduce_dims<Op, add, A, U>(q, x, y, partial.data(), next);
}

}  // namespace

void Cuda::sum(const Tensor& x, const Tensor& y, Write write) {
  Queue q{stream(), allocator()};
  visit_float(x.dtype(), [&]<class T>() {
    visit_sum<T>(y.dtype(), [&]<class U>() {
      visit_write(write, [&]<Write w>() {
        reduce_dims<Sum, w == Write::add, T, U>(q, x, y, values<T>(x), innermost(x, y, x.rank()));
      });
    });
  });
}

void Cuda::max(const Tensor& x, const Tensor& y) {
  Queue q{stream(), allocator()};
  visit_float(x.dtype(), [&]<class T>() {
    reduce_dims<MaxOrNan, false, T, T>(q, x, y, values<T>(x), innermost(x, y, x.rank()));
  });
}

void Cuda::squares(const Tensor& x, const Tensor& out) {
  int64_t n = x.numel();
  if (n == 0) return;
  visit_float(x.dtype(), [&]<class T>() {
    using Pieces = SquaresOfPieces<T>;
    int64_t pieces = (n + Pieces::piece - 1) / Pieces::piece;
    Scratch<double> parts(allocator(), 2 * pieces);
    launch(stream(), {pieces}, Pieces{values<T>(x), parts.data(), n});
    launch(stream(), {}, JoinSquares{parts.data(), values<double>(out), pieces});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
