#include "core/functors/binary.h"

#include "core/cpu/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/loops.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

// y of y's shape from a and b, expanded to it.
template <class T> struct Operands {
  const T *a, *b;
  T* y;
  int64_t step_a, step_b;
};

template <class F, class T> void binary_row(const Operands<T>& o, int64_t n) {
  auto loop = [&](auto at_a, auto at_b) __attribute__((always_inline)) {
    const T *a = o.a, *b = o.b;
    T* y = o.y;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      y[i] = convert<T>(F::forward(load(a[at_a(i)]), load(b[at_b(i)])));
  };
  auto one = [](int64_t i) { return i; };
  auto zero = [](int64_t) { return int64_t{0}; };
  if (o.step_a == 1 && o.step_b == 1) loop(one, one);
  else if (o.step_a == 1 && o.step_b == 0) loop(one, zero);
  else if (o.step_a == 0 && o.step_b == 1) loop(zero, one);
  else
    loop([s = o.step_a](int64_t i) { return i * s; }, [s = o.step_b](int64_t i) { return i * s; });
}

template <class F, class T> void binary_all(const Tensor& a, const Tensor& b, const Tensor& y) {
  Loops<3> loops;
  for (int d = 0, rank = y.rank(); d < rank; ++d) {
    int64_t size = y.size(d);
    loops.push(size, {stride_of(a, d, rank, size), stride_of(b, d, rank, size), y.strides()[d]});
  }
  const T *pa = values<T>(a), *pb = values<T>(b);
  T* py = values<T>(y);
  loops.run([&](const int64_t(&at)[3], int64_t n) {
    Operands<T> o{pa + at[0], pb + at[1], py + at[2], loops.inner_stride(0), loops.inner_stride(1)};
    binary_row<F>(o, n);
  });
}

template <class T>
void where_all(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) {
  Loops<4> loops;
  for (int d = 0, rank = y.rank(); d < rank; ++d) {
    int64_t size = y.size(d);
    loops.push(size, {stride_of(mask, d, rank, size), stride_of(a, d, rank, size),
                      stride_of(b, d, rank, size), y.strides()[d]});
  }
  const uint8_t* pm = values<uint8_t>(mask);
  const T *pa = values<T>(a), *pb = values<T>(b);
  T* py = values<T>(y);
  loops.run([&](const int64_t(&at)[4], int64_t n) {
    const uint8_t* m = pm + at[0];
    const T *x = pa + at[1], *z = pb + at[2];
    T* to = py + at[3];
    int64_t sm = loops.inner_stride(0), sx = loops.inner_stride(1), sz = loops.inner_stride(2);
    if (sm == 1 && sx == 1 && sz == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = fn::select(m[i] != 0, x[i], z[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = fn::select(m[i * sm] != 0, x[i * sx], z[i * sz]);
    }
  });
}

}  // namespace

void Cpu::binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    functors::Binary::visit(int(op), [&]<class F>() { binary_all<F, T>(a, b, y); });
  });
}

void Cpu::where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() { where_all<T>(mask, a, b, y); });
}

}  // namespace triax::host::TRIAX_LEVEL
