#pragma once
#include "core/convert.h"
#include "core/cpu/tiles.h"
#include "core/functors/gelu.h"

// What follows a product in tiles: its sums are added to c or rounded to it, with bias and gelu.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// row = elements of one row of c's kind, `stride` apart.
template <class C> TRIAX_HD void load_part(const C* from, int64_t stride, int64_t n, float* row) {
  if (stride == 1) {
    for (int64_t j = 0; j < n; ++j) row[j] = convert<float>(from[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) row[j] = convert<float>(from[j * stride]);
  }
}
/// A whole row of 64-byte lines, past the caches.
TRIAX_HD void stream_row(const float* row, BFloat16* to) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), round_row(row));
}
TRIAX_HD void stream_row(const float* row, float* to) {
  _mm512_stream_ps(to, _mm512_loadu_ps(row));
  _mm512_stream_ps(to + 16, _mm512_loadu_ps(row + 16));
}
TRIAX_HD void store_part(const float* row, int64_t n, BFloat16* to, int64_t stride) {
  if (stride == 1) store_row(to, round_row(row), n);
  else
    for (int64_t j = 0; j < n; ++j) to[j * stride] = BFloat16(row[j]);
}
TRIAX_HD void store_part(const float* row, int64_t n, float* to, int64_t stride) {
  for (int64_t j = 0; j < n; ++j) to[j * stride] = row[j];
}

/// A square of sums of product p on its way to c, some rows at a time: while tiles multiply the
/// next square.
template <class T, class C> class Finisher {
 public:
  explicit Finisher(const Product<T, C>& p)
      : p_(p),
        streams_(p.before && reinterpret_cast<uintptr_t>(p.before) % 64 == 0 &&
                 p.before_row * int64_t(sizeof(T)) % 64 == 0) {}
  ~Finisher() {
    if (streams_) _mm_sfence();
  }
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  /// Prefetches what advance() will read and write of a square.
  TRIAX_HD void fetch(const Block& at, bool last) const {
    constexpr int read = 0, write = 1;
    if (p_.c_col == 1) fetch<write>(at, p_.c, p_.c_row);
    if (last && p_.gelu_of && p_.before_col == 1) fetch<read>(at, p_.gelu_of, p_.before_row);
  }

  /// `sums`, rows of 32, must stay until done(). `last`: nothing will be added to them any more.
  void start(const Block& at, const float* sums, Write write, bool last) {
    at_ = at, sums_ = sums, write_ = write, last_ = last, row_ = 0;
    plain_ = at.rows == side && at.cols == side && p_.c_col == 1 &&
             (!p_.bias || (p_.bias_row == 0 && p_.bias_col == 1)) &&
             ((!p_.before && !p_.gelu_of) || p_.before_col == 1);
  }
  bool done() const { return row_ == at_.rows; }
  void finish() {
    while (!done()) advance(side);
  }

  /// Adds old c and, in the last pass, bias, multiplies by gelu's slope, or applies gelu; rounded
  /// once, with gelu twice.
  __attribute__((noinline)) void advance(int64_t rows) {
    int64_t end = fn::min(row_ + rows, at_.rows);
    if (plain_) finish_rows<true>(end);
    else finish_rows<false>(end);
  }

 private:
  template <int use, class E>
  TRIAX_HD static void fetch(const Block& at, const E* x, int64_t stride) {
    constexpr int64_t line = 64 / int64_t(sizeof(E));
    x += at.row * stride + at.col;
    for (int64_t r = 0; r < at.rows; ++r, x += stride)
      for (int64_t j = 0; j < side; j += line) __builtin_prefetch(x + j, use);
  }

  /// For a `whole` square of contiguous rows, sizes and strides are compile-time constants, so that
  /// the loops vectorise.
  template <bool whole> void finish_rows(int64_t end) {
    const int64_t cols = whole ? side : at_.cols, c_col = whole ? 1 : p_.c_col;
    const int64_t bias_col = whole ? 1 : p_.bias_col, before_col = whole ? 1 : p_.before_col;
    float old[side], bias[side], row[side], x[side] = {};
    auto load_bias = [&](int64_t r) {
      load_part(p_.bias + r * p_.bias_row + at_.col * bias_col, bias_col, cols, bias);
    };
    bool biased = last_ && p_.bias, with_gelu = last_ && p_.before;
    if (biased && p_.bias_row == 0) load_bias(0);
    for (; row_ < end; ++row_) {
      int64_t r = at_.row + row_;
      C* c = p_.c + r * p_.c_row + at_.col * c_col;
      for (int j = 0; j < side; ++j) row[j] = sums_[row_ * side + j];
      if (write_ == Write::add) {
        load_part(c, c_col, cols, old);
        for (int64_t j = 0; j < cols; ++j) row[j] += old[j];
      }
      if (biased) {
        if (p_.bias_row != 0) load_bias(r);
        for (int64_t j = 0; j < cols; ++j) row[j] += bias[j];
      }
      if (last_ && p_.gelu_of) {
        load_part(p_.gelu_of + r * p_.before_row + at_.col * before_col, before_col, cols, x);
        for (int j = 0; j < side; ++j) row[j] *= functors::Gelu::slope(x[j], 0.f);
      }
      if (with_gelu) {  // gelu of the rounded values, so that gelu(before) gives the same bits
        T* before = p_.before + r * p_.before_row + at_.col * before_col;
        if (whole && streams_) stream_row(row, before);
        else store_part(row, cols, before, before_col);
        for (int j = 0; j < side; ++j) row[j] = functors::Gelu::forward(float(T(row[j])));
      }
      store_part(row, cols, c, c_col);
    }
  }

  const Product<T, C>& p_;
  bool streams_;  // what gelu was taken of, which only backward reads
  Block at_{};
  const float* sums_ = nullptr;
  Write write_ = Write::set;
  bool last_ = false, plain_ = false;
  int64_t row_ = 0;  // of the square, the next
};

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
