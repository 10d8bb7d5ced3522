#include "core/cpu/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/loops.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// `omp simd` says that elements do not wait for each other, also where y is x itself: without it
// the compiler's test for overlap would send every in-place call through the scalar loop.

template <class F, class T> void forward(const Tensor& x, const Tensor& y) {
  const T* from = values<T>(x);
  T* to = values<T>(y);
  parallel_for(y.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = convert<T>(F::forward(load(from[i])));
  });
}

// A slope may not use x (or y), which may then be undefined: dy stands in, a load the compiler
// drops.
template <class F, class T, Write write>
void backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  const T* up = values<T>(dy);
  const T* in = x.defined() ? values<T>(x) : up;
  const T* out = y.defined() ? values<T>(y) : up;
  T* to = values<T>(dx);
  parallel_for(dx.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      put<write>(to[i], load(up[i]) * F::slope(load(in[i]), load(out[i])));
  });
}

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

void Cpu::unary(Unary op, const Tensor& x, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() { forward<F, T>(x, y); });
  });
}

void Cpu::unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& dy,
                         const Tensor& dx, Write write) {
  visit_float(dx.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() {
      visit_write(write, [&]<Write w>() { backward<F, T, w>(x, y, dy, dx); });
    });
  });
}

void Cpu::binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    functors::Binary::visit(int(op), [&]<class F>() { binary_all<F, T>(a, b, y); });
  });
}

void Cpu::where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() { where_all<T>(mask, a, b, y); });
}

}  // namespace triax::host::TRIAX_LEVEL
