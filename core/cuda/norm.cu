#include "core/cuda/kernels/norm.h"
#include "core/cuda/kernels/reduce.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

// As many pieces as make a few blocks for every processor of a large GPU, of 32 rows at least.
int64_t pieces_of(int64_t rows, int64_t groups) {
  return fn::max<int64_t>(1, fn::min((rows + 31) / 32, (1056 + groups - 1) / groups));
}

template <class U> struct WeightGradients {
  U *dgamma, *dbeta;
  Write write;
};

// The sums are made in A.
template <class T, int size, class A, class U>
void weights(const Queue& q, const Norm& n, const Tensor& dy, const WeightGradients<U>& to) {
  using Pieces = NormWeightPieces<T, size, A>;
  int64_t rows = dy.size(0), width = n.x.size(-1);
  if (width == 0) return;
  int64_t groups = (width + Pieces::columns - 1) / Pieces::columns;
  int64_t pieces = pieces_of(rows, groups);
  Scratch<A> parts(q.memory, 2 * pieces * width);
  launch(q.stream, {groups * pieces},
         Pieces{values<T>(n.x), values<T>(dy), values<A>(n.mean), values<A>(n.rstd), parts.data(),
                rows, width, pieces});
  visit_write(to.write, [&]<Write write>() {
    auto join = [&](const A* from, U* sums) {
      launch(q.stream, {(width + 31) / 32},
             JoinColumns<Sum, A, U, write>{from, sums, {{1, rows, width}, pieces}});
    };
    join(parts.data(), to.dgamma);
    if (to.dbeta) join(parts.data() + pieces * width, to.dbeta);
  });
}

template <class T, class A, class U>
void weights(const Queue& q, const Norm& n, const Tensor& dy, const WeightGradients<U>& to) {
  bool aligned = rows_aligned(n.x.size(-1), values<const T>(n.x), values<const T>(dy));
  if (aligned) weights<T, pack_size<T>(), A>(q, n, dy, to);
  else weights<T, 1, A>(q, n, dy, to);
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

void Cuda::norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write write) {
  int64_t rows = n.rstd.numel(), width = n.x.size(-1);
  if (rows == 0) return;
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *x = values<T>(n.x), *gamma = values<T>(n.gamma), *up = values<T>(dy);
    T* to = values<T>(dx);
    visit_layout<T>(width, rows_aligned(width, x, gamma, up, to), [&]<class Layout>() {
      launch(stream(), Layout::grid(rows),
             NormBackward<T, Layout>{x, gamma, up, values<A>(n.mean), values<A>(n.rstd), to, rows,
                                     width, write});
    });
  });
}

void Cuda::norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor& dgamma,
                                 const Tensor& dbeta, Write write) {
  Queue q{stream(), allocator()};
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dgamma.dtype(), [&]<class U>() {
      WeightGradients<U> to{values<U>(dgamma), values<U>(dbeta), write};
      weights<T, Accumulator<T>>(q, n, dy, to);
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
