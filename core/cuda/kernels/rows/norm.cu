#include "core/cuda/kernels/rows/norm.h"
#include "core/cuda/kernels/rows/reduce.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

// Returns as many pieces as make a few blocks per processor of a large GPU, of 32 rows at least.
int64_t pieces_of(int64_t rows, int64_t groups) {
  return fn::max<int64_t>(1, fn::min((rows + 31) / 32, (1056 + groups - 1) / groups));
}

template <class U> struct WeightGradients {
  U *dgamma, *dbeta;
  Write write;
};

// Joins parts [2, pieces, width].
template <class A, class U>
void join(Stream stream, const A* parts, const WeightGradients<U>& to, Pieces of) {
  visit_write(to.write, [&]<Write write>() {
    using Join = JoinColumns<Sum, A, U, write>;
    Join dgamma{parts, to.dgamma, of}, dbeta{parts + of.pieces * of.inner, to.dbeta, of};
    int64_t each = Join::blocks(of);
    launch(stream, {to.dbeta ? 2 * each : each}, JoinPair<Join>{dgamma, dbeta, each});
  });
}

// Makes the weights' gradients; sums are made in A.
template <class T, int size, class A, class U>
void weights(const Queue& q, const Norm& n, const Tensor& dy, const WeightGradients<U>& to) {
  using Part = NormWeightPieces<T, size, A>;
  int64_t rows = dy.size(0), width = n.x.size(-1);
  if (width == 0) return;
  int64_t groups = (width + Part::columns - 1) / Part::columns;
  int64_t pieces = pieces_of(rows, groups);
  Scratch<A> parts(q.memory, 2 * pieces * width);
  launch(q.stream, {groups * pieces},
         Part{values<T>(n.x), values<T>(dy), values<A>(n.mean), values<A>(n.rstd), parts.data(),
              rows, width, pieces});
  join(q.stream, parts.data(), to, {{1, rows, width}, pieces});
}

template <class T, class A, class U>
void weights(const Queue& q, const Norm& n, const Tensor& dy, const WeightGradients<U>& to) {
  bool aligned = rows_aligned(n.x.size(-1), values<const T>(n.x), values<const T>(dy));
  if (aligned) weights<T, pack_size<T>(), A>(q, n, dy, to);
  else weights<T, 1, A>(q, n, dy, to);
}

// Where a warp would hold 8 packs a thread, a block takes the row: the weights' sums of eight
// warps, each as wide as such a row, would leave shared memory for one block.
template <class Layout>
using BackwardLayout =
    std::conditional_t<Layout::team == 32 && Layout::most == 8, RowLayout<256, 1, true>, Layout>;

// Makes dx, and parts of the weights' gradients where a row is held in few registers.
template <class T, class Layout>
Tensor backward(Stream stream, const Norm& n, const NormGradient<T, Layout>& of) {
  if constexpr (Layout::most == 1 || Layout::most == 4) {
    using Parts = NormBackwardParts<T, Layout>;
    constexpr int64_t most = 4 * 132;  // of an H100's 132 processors each runs two or more at once
    int64_t each = fn::max<int64_t>(2 * Parts::teams, (of.rows - 1) / most + 1);
    int64_t blocks = (of.rows - 1) / each + 1;
    Tensor parts = empty({of.mean ? 2 : 1, blocks, of.width}, n.rstd.dtype(), n.rstd.device());
    launch(stream, {blocks}, Parts{of, values<Accumulator<T>>(parts), each});
    return parts;
  } else {
    launch(stream, Layout::grid(of.rows), NormBackward<T, Layout>{of});
    return {};
  }
}

}  // namespace

void Cuda::norm(const Norm& n, const Tensor& y) {
  int64_t rows = n.rstd.numel(), width = n.x.size(-1);
  if (rows == 0) return;
  visit_float(y.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *x = values<T>(n.x), *gamma = values<T>(n.gamma), *beta = values<T>(n.beta);
    T* to = values<T>(y);
    visit_layout<T>(width, rows_aligned(width, x, gamma, beta, to), [&]<class Layout>() {
      launch(stream(), Layout::grid(rows),
             NormForward<T, Layout>{x, gamma, beta, values<A>(n.mean), values<A>(n.rstd), to, rows,
                                    width, A(n.eps)});
    });
  });
}

Tensor Cuda::norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write write) {
  int64_t rows = n.rstd.numel(), width = n.x.size(-1);
  Tensor parts;
  if (rows == 0 || width == 0) return parts;
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *x = values<T>(n.x), *gamma = values<T>(n.gamma), *up = values<T>(dy);
    const A *mean = values<A>(n.mean), *rstd = values<A>(n.rstd);
    T* to = values<T>(dx);
    visit_layout<T>(width, rows_aligned(width, x, gamma, up, to), [&]<class Layout>() {
      parts = backward<T, BackwardLayout<Layout>>(
          stream(), n, {x, gamma, up, mean, rstd, to, rows, width, A(1) / A(width), write});
    });
  });
  return parts;
}

void Cuda::norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor& dgamma,
                                 const Tensor& dbeta, Write write) {
  Queue q{stream(), allocator()};
  visit_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    visit_sum<T>(dgamma.dtype(), [&]<class U>() {
      WeightGradients<U> to{values<U>(dgamma), values<U>(dbeta), write};
      if (n.parts.defined())
        join(q.stream, values<const A>(n.parts), to,
             {{1, n.parts.size(1), n.parts.size(2)}, n.parts.size(1)});
      else weights<T, A>(q, n, dy, to);
    });
  });
}

void Cuda::channel_sums(const Tensor& x, const Tensor& z, const Tensor& sums) {
  Queue q{stream(), allocator()};
  auto* plain = values<double>(sums);
  WeightGradients<double> to{plain + x.size(1), plain, Write::set};
  visit_float(x.dtype(), [&]<class T>() { weights<T, double>(q, {z, {}, {}, {}, {}, 0}, x, to); });
}

void Cuda::channel_affine(const Tensor& x, const Tensor& z, const Tensor& k, const Tensor& y) {
  visit_float(z.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    auto row = [&](int64_t i) { return k.narrow(0, i, 1); };
    Tensor a = row(0), b = row(1), m = row(2), c = row(3);
    if (x.defined())
      launch_broadcast(stream(), strides_of(y, x, z, a, b, m, c),
                       operands<T, T, T, A, A, A, A>(ChannelAffine<T>{}, y, x, z, a, b, m, c));
    else
      launch_broadcast(stream(), strides_of(y, z, b, m, c),
                       operands<T, T, A, A, A>(ChannelAffine<T>{}, y, z, b, m, c));
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
