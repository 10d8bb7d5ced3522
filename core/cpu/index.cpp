#include "core/cpu/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/loops.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

// All dims but `dim` of two tensors.
Loops<2> others(const Tensor& x, const Tensor& y, int dim) {
  Loops<2> loops;
  for (int d = 0; d < x.rank(); ++d)
    if (d != dim) loops.push(x.size(d), {x.strides()[d], y.strides()[d]});
  return loops;
}

// f(a, b, step_a, step_b, n): runs of n elements from `whole` at index[i] and from `picked` at i,
// i ascending. Parallel over what stands beside `dim`, so no two threads meet in one element.
template <class A, class B, class I, class F>
void for_picks(const Tensor& whole, const Tensor& picked, int dim, const Tensor& index, F f) {
  Loops<2> loops = others(whole, picked, dim);
  A* a = values<A>(whole);
  B* b = values<B>(picked);
  const I* at = values<const I>(index);
  int64_t count = index.numel(), step = index.strides()[0];
  int64_t move_a = whole.strides()[dim], move_b = picked.strides()[dim];
  int64_t step_a = loops.inner_stride(0), step_b = loops.inner_stride(1);
  loops.run([=](const int64_t(&from)[2], int64_t n) {
    for (int64_t i = 0; i < count; ++i)
      f(a + from[0] + int64_t(at[i * step]) * move_a, b + from[1] + i * move_b, step_a, step_b, n);
  });
}

// f(whole row, picked row, index row): rows of the last dim, in parallel.
template <class A, class B, class I, class F>
void for_rows(const Tensor& whole, const Tensor& picked, const Tensor& index, F f) {
  Loops<3> loops;
  int last = index.rank() - 1;
  for (int d = 0; d < last; ++d)
    loops.push(index.size(d), {whole.strides()[d], picked.strides()[d], index.strides()[d]});
  A* a = values<A>(whole);
  B* b = values<B>(picked);
  const I* at = values<const I>(index);
  int64_t move_a = whole.strides()[last], move_b = picked.strides()[last];
  int64_t step = index.strides()[last], columns = index.size(last);
  int64_t step_a = loops.inner_stride(0), step_b = loops.inner_stride(1);
  int64_t step_i = loops.inner_stride(2);
  loops.run([=](const int64_t(&from)[3], int64_t n) {
    for (int64_t r = 0; r < n; ++r) {
      A* x = a + from[0] + r * step_a;
      B* y = b + from[1] + r * step_b;
      const I* i = at + from[2] + r * step_i;
      for (int64_t j = 0; j < columns; ++j) f(x[int64_t(i[j * step]) * move_a], y[j * move_b]);
    }
  });
}

}  // namespace

void Cpu::index_select(const Tensor& x, int dim, const Tensor& index, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() {
    visit_index(index.dtype(), [&]<class I>() {
      for_picks<T, T, I>(x, y, x.shape().index(dim), index,
                         [](const T* from, T* to, int64_t step_from, int64_t step_to, int64_t n) {
                           if (step_from == 1 && step_to == 1)
                             __builtin_memcpy(to, from, size_t(n) * sizeof(T));
                           else
                             for (int64_t i = 0; i < n; ++i) to[i * step_to] = from[i * step_from];
                         });
    });
  });
}

void Cpu::index_add(const Tensor& dy, int dim, const Tensor& index, const Tensor& dx) {
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dx.dtype(), [&]<class U>() {
      visit_index(index.dtype(), [&]<class I>() {
        for_picks<U, T, I>(dx, dy, dx.shape().index(dim), index,
                           [](U* to, const T* from, int64_t step_to, int64_t step_from, int64_t n) {
                             for (int64_t i = 0; i < n; ++i)
                               put<Write::add>(to[i * step_to], load(from[i * step_from]));
                           });
      });
    });
  });
}

void Cpu::gather(const Tensor& x, const Tensor& index, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() {
    visit_index(index.dtype(), [&]<class I>() {
      for_rows<T, T, I>(x, y, index, [](const T& from, T& to) { to = from; });
    });
  });
}

void Cpu::scatter_add(const Tensor& dy, const Tensor& index, const Tensor& dx) {
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dx.dtype(), [&]<class U>() {
      visit_index(index.dtype(), [&]<class I>() {
        for_rows<U, T, I>(dx, dy, index,
                          [](U& to, const T& from) { put<Write::add>(to, load(from)); });
      });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
