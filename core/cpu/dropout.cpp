#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t block = 256;  // columns whose random words are made at a time

// Makes the words of columns [4 group, 4 group + block): four columns share one Philox call.
void random_words(const random::Mask& mask, uint64_t row, uint64_t group, uint32_t* words) {
  uint64_t key = mask.key;
#pragma omp simd
  for (uint64_t g = 0; g < block / 4; ++g) {
    random::Words w = random::philox(key, row, group + g);
    words[4 * g] = w.x;
    words[4 * g + 1] = w.y;
    words[4 * g + 2] = w.z;
    words[4 * g + 3] = w.w;
  }
}

template <class T>
void drop_row(const T* x, const random::Mask& mask, int64_t row, T* y, int64_t width) {
  uint32_t words[block];
  float p = mask.p, keep = 1.f / (1.f - p);
  int64_t skip = mask.column & 3;  // of the first group, columns in front of this row's slice
  for (int64_t c = 0; c < width;) {
    random_words(mask, uint64_t(mask.row + row), uint64_t(mask.column + c) / 4, words);
    int64_t n = fn::min(block - skip, width - c);
    const uint32_t* w = words + skip;
    const T* from = x + c;
    T* to = y + c;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      float u = random::unit(w[i]);
      to[i] = convert<T>(load(from[i]) * Accumulator<T>(fn::select(u < p, 0.f, keep)));
    }
    c += n;
    skip = 0;
  }
}

}  // namespace

void Cpu::dropout(const Tensor& x, const random::Mask& mask, const Tensor& y) {
  int64_t width = y.rank() ? y.size(-1) : 1, rows = width ? y.numel() / width : 0;
  visit_float(y.dtype(), [&]<class T>() {
    const T* from = values<T>(x);
    T* to = values<T>(y);
    parallel_each(rows, 4096 / (width + 1) + 1,
                  [&](int64_t r) { drop_row(from + r * width, mask, r, to + r * width, width); });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
