#pragma once
#include "triax/core/cpu/products/bf16_terms.h"

// Strips are packed piece by piece, while tiles multiply those before: the vector units have
// nothing else to do then. What is packed next is prefetched.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Packs before tiles multiply: `count` rows of a or columns of b, a row of memory for each depth,
/// to [strip][step][two tiles]. In the order of memory; the next 32 rows are prefetched meanwhile.
template <Part part>
void pack_crossed(Operand<BFloat16> x, int64_t count, int64_t depth, BFloat16* to) {
  int64_t steps = (depth + side - 1) / side;
  for (int64_t step = 0; step < steps; ++step, to += square) {
    Operand<BFloat16> next = x.at(0, (step + 1) * side);
    int64_t ahead = 0;
    for (int64_t i = 0; i < count; i += side) {
      for (int line = 0; line < side; ++line) {
        constexpr int read = 0, second_level = 2;
        __builtin_prefetch(next.data + ahead, read, second_level);
        ahead += side;
        if (ahead >= count) next = next.at(0, 1), ahead = 0;
      }
      pack_step<part>(x.at(i, step * side), fn::min<int64_t>(side, count - i),
                      fn::min<int64_t>(side, depth - step * side), to + i * steps * side);
    }
  }
}

/// Packs 32 rows of a or columns of b of a product, or fewer, step by step.
template <class T, Part part> class StripPacker {
 public:
  static constexpr bool is_f32 = __is_same(T, float);

  /// Starts on `count` rows or columns, `depth` deep, to [step][two tiles], or for f32 to
  /// [step][term][two tiles]. The unit stride may be of rows or of depth.
  void start(Operand<T> x, int64_t count, int64_t depth, BFloat16* to) {
    x_ = x, count_ = count, depth_ = depth, to_ = to;
    stride_ = x.inner == 1 ? x.outer : x.inner;
    turns_ = (x.inner == 1) != (part == Part::left);
    piece_ = 0;
    for (Words& seen : largest_) seen = Words{};
  }
  bool done() const { return depth_ <= 0; }
  /// Packs all that is left.
  void finish() {
    if (!done()) advance(INT64_MAX);
  }
  /// Returns the largest and smallest exponents that were packed; for f32.
  Exponents exponents() const { return exponents_of<part>(largest_); }

  /// Packs `pieces` pieces, or those left. A piece is a step; for f32 (if whole) it is a quarter of
  /// a transposition or two rows of tiles.
  __attribute__((noinline)) void advance(int64_t pieces) {
    if constexpr (is_f32) {
      FlushDenormals flush;
      pack_pieces(pieces);
    } else {
      pack_pieces(pieces);
    }
  }

 private:
  void pack_pieces(int64_t pieces) {
    while (pieces-- > 0 && !done()) pack_piece();
  }

  void pack_piece() {
    if constexpr (is_f32) {
      if (count_ == side && depth_ >= side) return advance_in_step();
      pack_terms<part>(x_, count_, fn::min<int64_t>(side, depth_), largest_, to_);
      end_step();
    } else {
      pack_step<part>(x_, count_, fn::min<int64_t>(side, depth_), to_);
      end_step();
      for (int i = 0; i < side; ++i) __builtin_prefetch(x_.data + i * stride_);
    }
  }

  static constexpr int quarters = 4;

  void advance_in_step() {
    if (piece_ == 0 && !turns_) piece_ = quarters;
    if (piece_ < quarters) {
      int i = piece_ / 2 * 16, j = piece_ % 2 * 16;
      transpose_part(x_.data + i * stride_ + j, stride_, turned_ + j * side + i);
    } else {
      split_rows(piece_ - quarters);
    }
    if (++piece_ == quarters + side / 2) end_step();
  }

  /// Splits rows `pair` of both tiles; for a left operand rows 2 pair and 2 pair + 1.
  TRIAX_HD void split_rows(int pair) {
    const float* from = turns_ ? turned_ : x_.data;
    int64_t stride = turns_ ? side : stride_;
    for (int half = 0; half < 2; ++half) {
      int row = 2 * pair + half;
      if constexpr (part == Part::left) {
        split_row(from + row * stride, from + row * stride + 16, largest_[row], to_ + row * side);
      } else {
        const float* first = from + pair * stride + 16 * half;
        split_row(first, first + 16 * stride, largest_[half],
                  to_ + half * tile_elements + pair * side);
      }
      const float* next = x_.data + side * x_.inner + row * stride_;
      __builtin_prefetch(next);
      __builtin_prefetch(next + 16);
    }
  }

  void end_step() {
    x_.data += side * x_.inner;
    depth_ -= side;
    to_ += is_f32 ? terms * square : square;
    piece_ = 0;
  }

  Operand<T> x_{};
  int64_t count_ = 0, depth_ = 0, stride_ = 0;
  BFloat16* to_ = nullptr;
  bool turns_ = false;  // rows in memory are columns of tiles
  int piece_ = 0;       // of a step of f32: the next piece
  Words largest_[is_f32 ? magnitudes<part> : 1];
  alignas(64) float turned_[is_f32 ? square : 1];
};

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
