#pragma once
#include <cmath>

namespace triax::parallel {

/// Returns the number as it is printed: a NaN without its sign, which means nothing.
inline double unsigned_nan(double x) { return std::isnan(x) ? NAN : x; }

}  // namespace triax::parallel
