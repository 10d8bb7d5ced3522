#include <omp.h>

#include "core/cpu/cpu.h"
#include "core/cpu/scratch.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

template <class T, class C>
void product(const Matmul& p, const int64_t* at, int64_t row, Accumulator<T>* sums) {
  using A = Accumulator<T>;
  int r = p.c.rank();
  int64_t n = p.c.size(-1), k = p.a.size(-1);
  int64_t ka = p.a.strides()[r - 1], kb = p.b.strides()[r - 2], nb = p.b.strides()[r - 1],
          nc = p.c.strides()[r - 1];
  const T* a = static_cast<const T*>(p.a.data()) + at[0] + row * p.a.strides()[r - 2];
  const T* b = static_cast<const T*>(p.b.data()) + at[1];
  C* c = static_cast<C*>(p.c.data()) + at[2] + row * p.c.strides()[r - 2];
  for (int64_t j = 0; j < n; ++j) sums[j] = 0;
  for (int64_t i = 0; i < k; ++i) {
    A x = A(a[i * ka]);
    const T* y = b + i * kb;
    if (nb == 1)
      for (int64_t j = 0; j < n; ++j) sums[j] += x * A(y[j]);
    else
      for (int64_t j = 0; j < n; ++j) sums[j] += x * A(y[j * nb]);
  }
  if (p.write == Write::add)
    for (int64_t j = 0; j < n; ++j) sums[j] += A(c[j * nc]);
  if (p.bias.defined()) {
    const T* bias = static_cast<const T*>(p.bias.data());
    for (int64_t j = 0; j < n; ++j) sums[j] += A(bias[j]);
  }
  if (p.before.defined()) {
    T* before = static_cast<T*>(p.before.data()) + row * p.before.strides()[0];
    for (int64_t j = 0; j < n; ++j) {
      before[j] = T(sums[j]);
      sums[j] = functors::Gelu::forward(sums[j]);
    }
  }
  for (int64_t j = 0; j < n; ++j) c[j * nc] = C(sums[j]);
}

template <class T, class C> void products(const Matmul& p) {
  int r = p.c.rank();
  int64_t m = p.c.size(-2), n = p.c.size(-1), batches = 1;
  for (int d = 0; d < r - 2; ++d) batches *= p.c.size(d);
  using A = Accumulator<T>;
  Scratch<A> scratch(n * omp_get_max_threads());
  A* room = scratch.data();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < batches * m; ++i) {
    int64_t at[3] = {}, left = i / m;
    for (int d = r - 3; d >= 0; --d) {
      int64_t x = left % p.c.size(d);
      left /= p.c.size(d);
      at[0] += x * p.a.strides()[d];
      at[1] += x * p.b.strides()[d];
      at[2] += x * p.c.strides()[d];
    }
    product<T, C>(p, at, i % m, room + n * omp_get_thread_num());
  }
}

}  // namespace

void Cpu::matmul(const Matmul& p) {
  visit_float(p.a.dtype(), [&]<class T>() {
    if (p.c.dtype() == p.a.dtype()) products<T, T>(p);
    else products<T, Accumulator<T>>(p);
  });
}

}  // namespace triax::host::TRIAX_LEVEL
