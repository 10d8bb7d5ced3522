#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/loops.h"
#include "triax/core/shared/convert.h"
#include "triax/core/shared/indices.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

struct Elements {
  char* first;
  int64_t bytes;  // of one

  explicit Elements(const Tensor& x) : first(values<char>(x)), bytes(int64_t(size_of(x.dtype()))) {}
  char* at(int64_t i) const { return first + i * bytes; }
};

// Calls f(whole, picked, n) with runs of n elements from `whole` at index[i] and from `picked` at
// i, i ascending. Parallel over the dims beside `dim`, so no two threads meet in one element.
template <class F>
void for_picks(const Tensor& whole, const Tensor& picked, int dim, const Tensor& index, F f) {
  Strides<2> others;
  for (int d = 0; d < whole.rank(); ++d)
    if (d != dim) others.push(whole.size(d), {whole.strides()[d], picked.strides()[d]});
  Elements a(whole), b(picked);
  Indices chosen = indices_of(index);
  int64_t count = index.numel(), step = index.strides()[0];
  int64_t move_a = whole.strides()[dim], move_b = picked.strides()[dim];
  for_runs(others, [=](const int64_t(&from)[2], int64_t n) {
    for (int64_t i = 0; i < count; ++i)
      f(Run{a.at(from[0] + chosen[i * step] * move_a), others.step(0)},
        Run{b.at(from[1] + i * move_b), others.step(1)}, n);
  });
}

template <class U, class T> void add_run(Run whole, Run picked, int64_t n) {
  U* to = reinterpret_cast<U*>(whole.at);
  const T* from = reinterpret_cast<const T*>(picked.at);
  for (int64_t i = 0; i < n; ++i) put<Write::add>(to[i * whole.step], load(from[i * picked.step]));
}

// A row of indices, from `first` on.
struct Picks {
  Indices of;
  int64_t first, step;
  // Calls f(j, index) for j in [0, n); the indices' dtype is looked up once.
  template <class F> void each(int64_t n, F f) const {
    auto walk = [=, this](const auto* index) {
      for (int64_t j = 0; j < n; ++j) f(j, int64_t(index[j * step]));
    };
    if (of.wide) walk(static_cast<const int64_t*>(of.data) + first);
    else walk(static_cast<const int32_t*>(of.data) + first);
  }
};

// Calls f(whole row, picked row, picks, n) for rows of the last dim, in parallel.
void for_rows(const Tensor& whole, const Tensor& picked, const Tensor& index,
              void (*f)(Run whole, Run picked, const Picks& picks, int64_t n)) {
  Strides<3> rows;
  int last = index.rank() - 1;
  for (int d = 0; d < last; ++d)
    rows.push(index.size(d), {whole.strides()[d], picked.strides()[d], index.strides()[d]});
  Elements a(whole), b(picked);
  Indices chosen = indices_of(index);
  int64_t move_a = whole.strides()[last], move_b = picked.strides()[last];
  int64_t step = index.strides()[last], columns = index.size(last);
  for_runs(rows, [=](const int64_t(&from)[3], int64_t n) {
    for (int64_t r = 0; r < n; ++r)
      f({a.at(from[0] + r * rows.step(0)), move_a}, {b.at(from[1] + r * rows.step(1)), move_b},
        {chosen, from[2] + r * rows.step(2), step}, columns);
  });
}

template <class T> void gather_row(Run whole, Run picked, const Picks& picks, int64_t n) {
  const T* from = reinterpret_cast<const T*>(whole.at);
  T* to = reinterpret_cast<T*>(picked.at);
  picks.each(n, [=](int64_t j, int64_t i) { to[j * picked.step] = from[i * whole.step]; });
}
template <class U, class T> void scatter_row(Run whole, Run picked, const Picks& picks, int64_t n) {
  U* to = reinterpret_cast<U*>(whole.at);
  const T* from = reinterpret_cast<const T*>(picked.at);
  picks.each(n, [=](int64_t j, int64_t i) {
    put<Write::add>(to[i * whole.step], load(from[j * picked.step]));
  });
}

}  // namespace

void Cpu::index_select(const Tensor& x, int dim, const Tensor& index, const Tensor& y) {
  DType dtype = y.dtype();
  for_picks(x, y, x.shape().index(dim), index,
            [=](Run from, Run to, int64_t n) { copy_run(dtype, from, to, n); });
}

void Cpu::index_add(const Tensor& dy, int dim, const Tensor& index, const Tensor& dx) {
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dx.dtype(), [&]<class U>() {
      for_picks(dx, dy, dx.shape().index(dim), index, add_run<U, T>);
    });
  });
}

void Cpu::gather(const Tensor& x, const Tensor& index, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() { for_rows(x, y, index, gather_row<T>); });
}

void Cpu::scatter_add(const Tensor& dy, const Tensor& index, const Tensor& dx) {
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dx.dtype(), [&]<class U>() { for_rows(dx, dy, index, scatter_row<U, T>); });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
