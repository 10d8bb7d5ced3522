#pragma once
#include <cmath>

namespace triax::parallel {

/// The number as it is printed: the sign of a NaN says nothing.
inline double unsigned_nan(double x) { return std::isnan(x) ? NAN : x; }

}  // namespace triax::parallel
