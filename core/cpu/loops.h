#pragma once
#include "core/cpu/parallel.h"
#include "core/tensor.h"

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// The dims that N strided operands are walked along together. Sizes of 1 are dropped and
/// neighbours that every operand allows to be merged are, so that the last dim is long.
template <int N> class Loops {
 public:
  /// Add an innermost dim.
  void push(int64_t size, const int64_t (&stride)[N]) {
    numel_ *= size;
    if (size == 1) return;
    bool merges = rank_ > 0;
    for (int k = 0; k < N; ++k) merges = merges && stride_[rank_ - 1][k] == stride[k] * size;
    int d = merges ? rank_ - 1 : rank_++;
    size_[d] = merges ? size_[d] * size : size;
    for (int k = 0; k < N; ++k) stride_[d][k] = stride[k];
  }

  int64_t inner() const { return rank_ ? size_[rank_ - 1] : 1; }
  int64_t inner_stride(int k) const { return rank_ ? stride_[rank_ - 1][k] : 0; }
  /// Runs of the innermost dim.
  int64_t rows() const { return numel_ ? numel_ / inner() : 0; }

  /// Where each operand's row begins.
  TRIAX_HD void at(int64_t row, int64_t (&offset)[N]) const {
    for (int k = 0; k < N; ++k) offset[k] = 0;
    for (int d = rank_ - 2; d >= 0; --d) {
      int64_t i = d ? row % size_[d] : row;
      if (d) row /= size_[d];
      for (int k = 0; k < N; ++k) offset[k] += i * stride_[d][k];
    }
  }

  /// f(offset, n) for pieces of rows, in parallel: n elements from each operand's offset on,
  /// inner_stride() apart.
  template <class F> void run(F f) const {
    constexpr int64_t grain = 1 << 14;
    int64_t n = inner(), block = n < grain ? n : grain;
    if (numel_ == 0) return;
    int64_t blocks = (n + block - 1) / block;
    parallel_for(rows() * blocks, grain / block, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        int64_t row = blocks == 1 ? p : p / blocks, first = (p - row * blocks) * block;
        int64_t offset[N];
        at(row, offset);
        for (int k = 0; k < N; ++k) offset[k] += first * inner_stride(k);
        f(offset, n - first < block ? n - first : block);
      }
    });
  }

 private:
  int rank_ = 0;
  int64_t numel_ = 1;
  int64_t size_[Shape::max_rank] = {};
  int64_t stride_[Shape::max_rank][N] = {};
};

/// Element stride of `x` along dim `d` of `rank`: dims in front of x's own, and dims of size 1
/// that stand for a longer one, have stride 0.
inline __attribute__((always_inline)) int64_t stride_of(const Tensor& x, int d, int rank,
                                                        int64_t size) {
  int own = d - (rank - x.rank());
  return own < 0 || (x.size(own) == 1 && size != 1) ? 0 : x.strides()[own];
}

}  // namespace
}  // namespace triax::host
