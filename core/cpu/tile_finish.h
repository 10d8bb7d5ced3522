#pragma once
#include "core/convert.h"
#include "core/cpu/tiles.h"
#include "core/functors/gelu.h"

// What follows a product in tiles: its sums are added to c or rounded to it, with bias and gelu.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// row = elements of one row of c's kind, `stride` apart.
template <class C> TRIAX_HD void load_part(const C* from, int64_t stride, int64_t n, float* row) {
  for (int64_t j = 0; j < n; ++j) row[j] = convert<float>(from[j * stride]);
}
TRIAX_HD void store_part(const float* row, int64_t n, BFloat16* to, int64_t stride) {
  if (stride == 1) store_row(to, round_row(row), n);
  else
    for (int64_t j = 0; j < n; ++j) to[j * stride] = BFloat16(row[j]);
}
TRIAX_HD void store_part(const float* row, int64_t n, float* to, int64_t stride) {
  for (int64_t j = 0; j < n; ++j) to[j * stride] = row[j];
}

// Whole rows of 32 neighbours.
TRIAX_HD void widen_row(__m512i from, float* row) {
  typedef uint16_t Bits __attribute__((vector_size(32)));
  typedef uint32_t Wide __attribute__((vector_size(64)));
  auto low = Bits(__builtin_shufflevector(from, from, 0, 1, 2, 3));
  auto high = Bits(__builtin_shufflevector(from, from, 4, 5, 6, 7));
  store(row, Vector<float>(__builtin_convertvector(low, Wide) << 16));
  store(row + 16, Vector<float>(__builtin_convertvector(high, Wide) << 16));
}
TRIAX_HD void load_whole(const BFloat16* from, float* row) { widen_row(load_row(from, side), row); }
TRIAX_HD void load_whole(const float* from, float* row) {
  for (int j = 0; j < side; ++j) row[j] = from[j];
}
template <class C> TRIAX_HD void store_whole(const float* row, C* to) {
  store_part(row, side, to, 1);
}
/// On 64-byte lines, past the caches.
TRIAX_HD void stream_whole(const float* row, BFloat16* to) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), round_row(row));
}
TRIAX_HD void stream_whole(const float* row, float* to) {
  _mm512_stream_ps(to, _mm512_loadu_ps(row));
  _mm512_stream_ps(to + 16, _mm512_loadu_ps(row + 16));
}
/// row = itself as T has it.
template <class T> TRIAX_HD void round_whole(float* row) {
  if constexpr (!__is_same(T, float)) widen_row(round_row(row), row);
}

/// What a square of whole rows needs in its last pass beside c and bias.
enum class Beside { nothing, gelu, slope };

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

  /// From now on, advance() also prefetches what it will read and write of this square: at once, a
  /// square's lines would keep the core from all others.
  TRIAX_HD void expect(const Block& at, bool last) {
    expected_ = at, expects_last_ = last, fetched_ = 0;
  }
  /// `sums`, rows of 32, must stay until idle() or finish(). `last`: nothing will be added to them
  /// any more.
  void start(const Block& at, const float* sums, Write write, bool last) {
    at_ = at, sums_ = sums, write_ = write, last_ = last, row_ = 0;
    whole_ = at.rows == side && at.cols == side && p_.c_col == 1 &&
             (!p_.bias || (p_.bias_row == 0 && p_.bias_col == 1)) &&
             ((!p_.before && !p_.gelu_of) || p_.before_col == 1);
  }
  bool idle() const { return done() && fetched_ >= expected_.rows; }
  void finish() {
    if (!done()) finish_rows(at_.rows);
  }
  __attribute__((noinline)) void advance(int64_t rows) {
    fetch_rows(rows);
    if (!done()) finish_rows(fn::min(row_ + rows, at_.rows));
  }

 private:
  bool done() const { return row_ == at_.rows; }

  TRIAX_HD void fetch_rows(int64_t rows) {
    constexpr int read = 0, write = 1;
    Block at = expected_;
    at.row += fetched_, at.rows = fn::min(rows, at.rows - fetched_);
    if (p_.c_col == 1) fetch<write>(at, p_.c, p_.c_row);
    if (expects_last_ && p_.gelu_of && p_.before_col == 1)
      fetch<read>(at, p_.gelu_of, p_.before_row);
    fetched_ += rows;
  }
  template <int use, class E>
  TRIAX_HD static void fetch(const Block& at, const E* x, int64_t stride) {
    constexpr int64_t line = 64 / int64_t(sizeof(E));
    x += at.row * stride + at.col;
    for (int64_t r = 0; r < at.rows; ++r, x += stride)
      for (int64_t j = 0; j < side; j += line) __builtin_prefetch(x + j, use);
  }

  /// Adds old c and, in the last pass, bias, multiplies by gelu's slope, or applies gelu; rounded
  /// once, with gelu twice: it is that of the rounded values, so that gelu(before) has the same
  /// bits.
  __attribute__((noinline)) void finish_rows(int64_t end) {
    if (!whole_) return part_rows(end);
    if (last_ && p_.before) return whole_rows<Beside::gelu>(end);
    if (last_ && p_.gelu_of) return whole_rows<Beside::slope>(end);
    whole_rows<Beside::nothing>(end);
  }

  template <Beside beside> void whole_rows(int64_t end) {
    alignas(64) float bias[side], row[side], x[side];
    bool biased = last_ && p_.bias;
    if (biased) load_whole(p_.bias + at_.col, bias);
    for (; row_ < end; ++row_) {
      int64_t r = at_.row + row_;
      C* c = p_.c + r * p_.c_row + at_.col;
      load_whole(sums_ + row_ * side, row);
      if (write_ == Write::add) {
        load_whole(c, x);
        for (int j = 0; j < side; ++j) row[j] += x[j];
      }
      if (biased)
        for (int j = 0; j < side; ++j) row[j] += bias[j];
      if constexpr (beside == Beside::slope) {
        load_whole(p_.gelu_of + r * p_.before_row + at_.col, x);
        for (int j = 0; j < side; ++j) row[j] *= functors::Gelu::slope(x[j], 0.f);
      }
      if constexpr (beside == Beside::gelu) {
        T* before = p_.before + r * p_.before_row + at_.col;
        if (streams_) stream_whole(row, before);
        else store_whole(row, before);
        round_whole<T>(row);
        for (int j = 0; j < side; ++j) row[j] = functors::Gelu::forward(row[j]);
      }
      store_whole(row, c);
    }
  }

  /// Of a square at the edge, or with other strides.
  void part_rows(int64_t end) {
    const int64_t cols = at_.cols;
    float old[side] = {}, row[side];
    for (; row_ < end; ++row_) {
      int64_t r = at_.row + row_;
      C* c = p_.c + r * p_.c_row + at_.col * p_.c_col;
      for (int j = 0; j < side; ++j) row[j] = sums_[row_ * side + j];
      if (write_ == Write::add) {
        load_part(c, p_.c_col, cols, old);
        for (int64_t j = 0; j < cols; ++j) row[j] += old[j];
      }
      if (last_ && p_.bias) {
        load_part(p_.bias + r * p_.bias_row + at_.col * p_.bias_col, p_.bias_col, cols, old);
        for (int64_t j = 0; j < cols; ++j) row[j] += old[j];
      }
      int64_t beside = r * p_.before_row + at_.col * p_.before_col;
      if (last_ && p_.gelu_of) {
        load_part(p_.gelu_of + beside, p_.before_col, cols, old);
        for (int64_t j = 0; j < cols; ++j) row[j] *= functors::Gelu::slope(old[j], 0.f);
      }
      if (last_ && p_.before) {
        store_part(row, cols, p_.before + beside, p_.before_col);
        for (int64_t j = 0; j < cols; ++j) row[j] = functors::Gelu::forward(float(T(row[j])));
      }
      store_part(row, cols, c, p_.c_col);
    }
  }

  const Product<T, C>& p_;
  bool streams_;  // what gelu was taken of, which only backward reads
  Block at_{}, expected_{};
  const float* sums_ = nullptr;
  Write write_ = Write::set;
  bool last_ = false, whole_ = false, expects_last_ = false;
  int64_t row_ = 0, fetched_ = 0;  // of the square, the next; of the expected one
};

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
