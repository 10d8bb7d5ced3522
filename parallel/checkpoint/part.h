#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "triax/core/shape.h"

namespace triax::parallel {

/// The elements of a full tensor that a rank holds: a slice of one dim (tensor parallelism), and of
/// that slice's elements in row-major order possibly only a range (ZeRO cuts anywhere).
struct Part {
  Shape full;                     ///< of the whole logical tensor
  int dim = -1;                   ///< the sliced dim, -1: the slice is the whole tensor
  int64_t begin = 0, length = 0;  ///< the slice is [begin, begin + length) of `dim`
  int64_t flat_begin = 0;         ///< the range within the slice's elements
  int64_t flat_end = -1;          ///< -1: to the end of the slice
  bool operator==(const Part&) const = default;
};

/// Describes the fault of a part (a slice beyond its dim, a range beyond its slice); empty: none.
std::string problem(const Part& part);
/// Returns the slice's shape.
Shape slice_shape(const Part& part);
/// Returns the number of elements held.
int64_t count(const Part& part);
/// True if it holds all of its slice. Then its tensor has the slice's shape, else it is flat.
bool is_whole_slice(const Part& part);
/// Returns the shape of the tensor that holds the part.
Shape held_shape(const Part& part);

/// A run of `count` elements, at `to` in one part and at `from` in another; both count from the
/// part's own first element.
struct Overlap {
  int64_t to, from, count;
};
/// Calls `visit` for each run of elements that two parts of one tensor share, in ascending order.
/// Both must be faultless, with equal `full`.
void for_each_overlap(const Part& to, const Part& from,
                      const std::function<void(const Overlap&)>& visit);

/// Whether faultless parts of one tensor hold each of its elements exactly once. If not, `at` is
/// the first that is missing or held twice.
struct Tiling {
  bool exact;
  int64_t at;
};
Tiling tiling(const Shape& full, const std::vector<Part>& parts);

}  // namespace triax::parallel
