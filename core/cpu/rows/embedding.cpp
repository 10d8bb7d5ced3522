#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/convert.h"
#include "triax/core/shared/indices.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t block = 256;  // columns summed at a time, on the stack

// The tokens that use each row of the table, in ascending order, as linked lists: each row is then
// summed in the accumulator and written once, whoever works on it.
struct Uses {
  const int64_t *head, *next;  // -1 ends a list
};

void link(const Indices& ids, int64_t tokens, int64_t first, int64_t rows, int64_t* head,
          int64_t* next) {
  for (int64_t r = 0; r < rows; ++r) head[r] = -1;
  for (int64_t i = tokens - 1; i >= 0; --i) {
    int64_t r = ids[i] - first;
    if (r < 0 || r >= rows) continue;
    next[i] = head[r];
    head[r] = i;
  }
}

template <class T, class U, Write write>
void sum_row(const Uses& uses, int64_t row, const T* dy, U* to, int64_t width) {
  using A = Accumulator<T>;
  if (write == Write::add && uses.head[row] < 0) return;
  for (int64_t c = 0; c < width; c += block) {
    int64_t n = fn::min(block, width - c);
    A sum[block];
    for (int64_t j = 0; j < n; ++j) sum[j] = 0;
    for (int64_t i = uses.head[row]; i >= 0; i = uses.next[i]) {
      const T* from = dy + i * width + c;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) sum[j] += load(from[j]);
    }
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) put<write>(to[c + j], sum[j]);
  }
}

}  // namespace

void Cpu::embedding(const Tensor& ids, const Tensor& table, int64_t first, const Tensor& y) {
  if (y.numel() == 0) return;
  int64_t width = table.size(1), rows = table.size(0), tokens = ids.numel();
  size_t bytes = size_t(width) * size_of(y.dtype());
  Indices id = indices_of(ids);
  const char* from = values<char>(table);
  char* to = values<char>(y);
  parallel_each(tokens, (1 << 13) / (width + 1) + 1, [=](int64_t i) {
    int64_t r = id[i] - first;
    if (r < 0 || r >= rows) __builtin_memset(to + size_t(i) * bytes, 0, bytes);
    else __builtin_memcpy(to + size_t(i) * bytes, from + size_t(r) * bytes, bytes);
  });
}

void Cpu::embedding_backward(const Tensor& ids, const Tensor& dy, int64_t first,
                             const Tensor& dtable, Write write) {
  int64_t width = dtable.size(1), rows = dtable.size(0), tokens = ids.numel();
  Scratch<int64_t> scratch(rows + tokens);
  Uses uses{scratch.data(), scratch.data() + rows};
  link(indices_of(ids), tokens, first, rows, scratch.data(), scratch.data() + rows);
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dtable.dtype(), [&]<class U>() {
      visit_write(write, [&]<Write w>() {
        const T* up = values<T>(dy);
        U* to = values<U>(dtable);
        parallel_each(rows, (1 << 12) / (width + 1) + 1,
                      [&](int64_t r) { sum_row<T, U, w>(uses, r, up, to + r * width, width); });
      });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
