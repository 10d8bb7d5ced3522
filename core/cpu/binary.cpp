#include "triax/core/functors/binary.h"

#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/loops.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Makes y[i] of N inputs' elements i, all neighbours.
template <int N> using Formula = void (*)(const void* const (&in)[N], void* out, int64_t n);

template <class F, class T> void binary_run(const void* const (&in)[2], void* out, int64_t n) {
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  T* y = static_cast<T*>(out);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert<T>(F::forward(load(a[i]), load(b[i])));
}

template <class T> void where_run(const void* const (&in)[3], void* out, int64_t n) {
  const uint8_t* m = static_cast<const uint8_t*>(in[0]);
  const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = fn::select(m[i] != 0, a[i], b[i]);
}

/// Makes y, which is contiguous, from inputs that are expanded to it.
template <class... In>
void elementwise(Formula<sizeof...(In)> formula, const Tensor& y, const In&... x) {
  constexpr int N = sizeof...(In);
  Strides<1 + N> s = strides_of(y, x...);
  char *out = values<char>(y), *first[N] = {values<char>(x)...};
  DType dtype[N] = {x.dtype()...};
  int64_t size = int64_t(size_of(y.dtype())), most = s.inner();
  for (int k = 0; k < N; ++k)
    if (s.step(1 + k) != 1) most = block;
  for_runs(s, [&](const int64_t(&at)[1 + N], int64_t n) {
    Block together[N];
    const void* in[N];
    for (int64_t i = 0; i < n; i += most) {
      int64_t count = fn::min(most, n - i);
      for (int k = 0; k < N; ++k) {
        int64_t step = s.step(1 + k);
        char* from = first[k] + (at[1 + k] + i * step) * int64_t(size_of(dtype[k]));
        in[k] = step == 1 ? from : together[k].at;
        if (step != 1 && (step != 0 || i == 0))
          copy_run(dtype[k], {from, step}, {together[k].at, 1}, count);
      }
      formula(in, out + (at[0] + i) * size, count);
    }
  });
}

}  // namespace

void Cpu::binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  Formula<2> formula = nullptr;
  visit_float(y.dtype(), [&]<class T>() {
    functors::Binary::visit(int(op), [&]<class F>() { formula = binary_run<F, T>; });
  });
  elementwise(formula, y, a, b);
}

void Cpu::where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() { elementwise(where_run<T>, y, mask, a, b); });
}

}  // namespace triax::host::TRIAX_LEVEL
