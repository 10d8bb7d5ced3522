#pragma once
#include "triax/core/cpu/products/tiles.h"
#include "triax/core/functors/gelu.h"
#include "triax/core/numbers/fixed_point.h"
#include "triax/core/shared/convert.h"

// The end of a product in tiles: its sums are added to c or rounded to it, with bias and gelu, or
// rounded to multiples of a unit and added in f64.
namespace triax::host::TRIAX_LEVEL {
namespace {

// One row of a square: 32 elements of f32, of which `n` count.

/// row[j] = from[j * stride].
template <class E> TRIAX_HD void load_part(const E* from, int64_t stride, int64_t n, float* row) {
  for (int64_t j = 0; j < n; ++j) row[j] = convert<float>(from[j * stride]);
}
TRIAX_HD void store_part(const float* row, int64_t n, BFloat16* to, int64_t stride) {
  if (stride == 1) return store_row(to, round_row(row), n);
  BFloat16 rounded[side];
  store_row(rounded, round_row(row), side);
  for (int64_t j = 0; j < n; ++j) to[j * stride] = rounded[j];
}
TRIAX_HD void store_part(const float* row, int64_t n, float* to, int64_t stride) {
  for (int64_t j = 0; j < n; ++j) to[j * stride] = row[j];
}

/// row[j] = from[j], for all 32.
template <class E> TRIAX_HD void load_whole(const E* from, float* row) {
  store(row, load<float>(from));
  store(row + 16, load<float>(from + 16));
}
/// Writes to whole 64-byte lines, past the caches.
TRIAX_HD void stream_whole(const float* row, BFloat16* to) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), round_row(row));
}
TRIAX_HD void stream_whole(const float* row, float* to) {
  _mm512_stream_ps(to, _mm512_loadu_ps(row));
  _mm512_stream_ps(to + 16, _mm512_loadu_ps(row + 16));
}
/// to[j * stride] = or += row[j], rounded to multiples of a unit.
template <Write write>
TRIAX_HD void put_rounded(const float* row, int64_t n, FixedPoint f, double* to, int64_t stride) {
  for (int64_t j = 0; j < n; ++j) {
    double rounded = f.round(double(row[j])), &at = to[j * stride];
    at = write == Write::add ? at + rounded : rounded;
  }
}
/// Rounds all 32 numbers to T.
template <class T> TRIAX_HD void round_whole(float* row) {
  if constexpr (!__is_same(T, float)) {
    alignas(64) T rounded[side];
    store_row(rounded, round_row(row), side);
    load_whole(rounded, row);
  }
}

/// A square of results and what a pass over the depth does to it: sums are written or added, and
/// in the `last` pass bias and gelu follow.
struct Results {
  Block at;
  Write write;
  bool last;
};

/// Finishes squares of sums of product p into c, some rows at a time, while tiles multiply the next
/// square.
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

  /// Tells advance() which rows of c and of what gelu was taken of to prefetch. All at once would
  /// delay the tiles' own loads.
  TRIAX_HD void expect(const Results& next) { expected_ = next, fetched_ = 0; }
  /// Starts on `sums`, rows of 32, which must stay until finish() or until the next square starts.
  void start(const Results& results, const float* sums) {
    finish();
    now_ = results, sums_ = sums, row_ = 0;
    contiguous_ = now_.at.rows == side && now_.at.cols == side && p_.c_col == 1 &&
                  (!p_.bias || (p_.bias_row == 0 && p_.bias_col == 1)) &&
                  ((!p_.before && !p_.gelu_of) || p_.before_col == 1);
  }
  /// True if advance() has nothing left to do.
  bool idle() const { return row_ == now_.at.rows && fetched_ >= expected_.at.rows; }
  /// Prefetches `rows` rows and finishes as many.
  __attribute__((noinline)) void advance(int64_t rows) {
    fetch_rows(rows);
    finish_until(fn::min(row_ + rows, now_.at.rows));
  }
  void finish() { finish_until(now_.at.rows); }

 private:
  enum class Activation { none, gelu, slope };

  TRIAX_HD void fetch_rows(int64_t rows) {
    constexpr int read = 0, write = 1;
    Block at = expected_.at;
    at.row += fetched_, at.rows = fn::min(rows, at.rows - fetched_);
    if (p_.c_col == 1) fetch<write>(at, p_.c, p_.c_row);
    if (expected_.last && p_.gelu_of && p_.before_col == 1)
      fetch<read>(at, p_.gelu_of, p_.before_row);
    fetched_ += rows;
  }
  /// Prefetches 32 columns, whatever `at` has.
  template <int use, class E>
  TRIAX_HD static void fetch(const Block& at, const E* x, int64_t stride) {
    constexpr int64_t line = 64 / int64_t(sizeof(E));
    x += at.row * stride + at.col;
    for (int64_t r = 0; r < at.rows; ++r, x += stride)
      for (int64_t j = 0; j < side; j += line) __builtin_prefetch(x + j, use);
  }

  void finish_until(int64_t end) {
    if (row_ == end) return;
    if constexpr (__is_same(C, double)) {
      if (now_.write == Write::add) round_rows<Write::add>(end);
      else round_rows<Write::set>(end);
    } else if (now_.last && p_.before) finish_rows<Activation::gelu>(end);
    else if (now_.last && p_.gelu_of) finish_rows<Activation::slope>(end);
    else finish_rows<Activation::none>(end);
  }
  template <Activation f> __attribute__((noinline)) void finish_rows(int64_t end) {
    if (contiguous_) finish_rows<f, true>(end);
    else finish_rows<f, false>(end);
  }

  /// Finishes rows of an f64 c in fixed point.
  template <Write write> __attribute__((noinline)) void round_rows(int64_t end) {
    for (; row_ < end; ++row_) {
      const float* row = sums_ + row_ * side;
      C* c = p_.c + (now_.at.row + row_) * p_.c_row + now_.at.col * p_.c_col;
      if (contiguous_) put_rounded<write>(row, side, *p_.rounding, c, 1);
      else put_rounded<write>(row, now_.at.cols, *p_.rounding, c, p_.c_col);
    }
  }

  /// Adds old c and bias, then applies gelu or multiplies by its slope. Results are rounded once.
  /// Gelu is taken of rounded sums, which `before` keeps, so that gelu(before) gives the same bits.
  template <Activation f, bool contiguous> void finish_rows(int64_t end) {
    const int64_t cols = contiguous ? side : now_.at.cols;
    alignas(64) float row[side], bias[side], x[side];
    auto load = [cols](const auto* from, int64_t stride, float* to) {
      if constexpr (contiguous) load_whole(from, to);
      else load_part(from, stride, cols, to);
    };
    auto load_bias = [&](int64_t r) {
      load(p_.bias + r * p_.bias_row + now_.at.col * p_.bias_col, p_.bias_col, bias);
    };
    bool biased = now_.last && p_.bias;
    if (contiguous && biased) load_bias(0);
    for (; row_ < end; ++row_) {
      int64_t r = now_.at.row + row_, offset = r * p_.before_row + now_.at.col * p_.before_col;
      C* c = p_.c + r * p_.c_row + now_.at.col * p_.c_col;
      load_whole(sums_ + row_ * side, row);
      if (now_.write == Write::add) {
        load(c, p_.c_col, x);
        for (int64_t j = 0; j < cols; ++j) row[j] += x[j];
      }
      if (biased) {
        if (!contiguous) load_bias(r);
        for (int64_t j = 0; j < cols; ++j) row[j] += bias[j];
      }
      if constexpr (f == Activation::slope) {
        load(p_.gelu_of + offset, p_.before_col, x);
        for (int64_t j = 0; j < cols; ++j) row[j] *= functors::Gelu::slope(x[j], 0.f);
      }
      if constexpr (f == Activation::gelu) {
        round_whole<T>(row);
        if (contiguous && streams_) stream_whole(row, p_.before + offset);
        else store_part(row, cols, p_.before + offset, contiguous ? 1 : p_.before_col);
        for (int64_t j = 0; j < cols; ++j) row[j] = functors::Gelu::forward(row[j]);
      }
      store_part(row, cols, c, contiguous ? 1 : p_.c_col);
    }
  }

  const Product<T, C>& p_;
  bool streams_;  // past the caches: `before`, which only backward reads
  Results now_{}, expected_{};
  const float* sums_ = nullptr;
  bool contiguous_ = false;        // a whole square of rows with unit strides
  int64_t row_ = 0, fetched_ = 0;  // the next row to finish, and to prefetch
};

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
