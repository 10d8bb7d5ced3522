#pragma once
#include "triax/core/numbers/half.h"

namespace triax {

/// Sums in fixed point, whose bits do not depend on the order of their terms, nor on who adds
/// which: each term is rounded to a multiple of a unit. Multiples of a unit add up in f64 without
/// rounding, in any order, while every partial sum stays below 2^53 of them.
struct FixedPoint {
  double unit;     ///< a power of two
  double largest;  ///< of a term; a larger one is NaN, for a sum of such might be rounded

  /// Returns the one for sums of at most `terms` terms.
  static FixedPoint of(double unit, double terms) {
    double most = 0x1p52 / terms;
    return {unit, unit * (most < 0x1p51 ? most : 0x1p51)};
  }
  /// Rounds to the nearest multiple, ties to even: at 1.5 * 2^52 units the spacing of f64 is one.
  TRIAX_HD double round(double x) const {
    double shift = 0x1.8p52 * unit, y = (x + shift) - shift;
    return __builtin_fabs(x) < largest ? y : __builtin_nan("");
  }
};

/// A fixed-point sum of numbers of any size below 2^52 (larger ones are NaN), in several words,
/// each of which holds what the one before it has rounded away, down to 2^-90. A word's terms are
/// at most 2^22 units, so those of 2^30 numbers add up exactly; in the first word while the sum is
/// below 2^78.
struct WideSum {
  static constexpr int words = 6;
  static constexpr double largest = 0x1p52, first_unit = 0x1p25, next_unit = 0x1p-23;

  /// Returns the multiple of `unit` nearest to `rest`, and subtracts it from `rest`.
  TRIAX_HD static double take(double& rest, double unit) {
    double shift = 0x1.8p52 * unit, part = (rest + shift) - shift;
    rest -= part;
    return part;
  }
  /// Adds x to the sum in `to` [words].
  TRIAX_HD static void add(double x, double* to) {
    double rest = __builtin_fabs(x) < largest ? x : __builtin_nan(""), unit = first_unit;
    for (int w = 0; w < words; ++w, unit *= next_unit) to[w] += take(rest, unit);
  }
  static double value(const double* of) {
    double all = 0;
    for (int w = words; w-- > 0;) all += of[w];
    return all;
  }
};

}  // namespace triax
