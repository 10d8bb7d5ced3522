#pragma once
#include <limits>

#include "parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel::synthesis {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Returns the time of a micro-batch, forward and backward.
inline double total(const Durations& t) { return t.forward + t.backward_input + t.backward_weight; }

/// The problem of a search, with the numbers that every try needs.
struct Problem {
  Problem(const PipelineShape& shape, const StageTimes& times, const Budget& budget);

  int virtual_stages() const { return shape.virtual_stages(); }
  const Durations& times_of(int stage, int chunk) const {
    return times[size_t(shape.virtual_stage(stage, chunk))];
  }

  PipelineShape shape;
  StageTimes times;  ///< latency 0 where an exchange stays on its stage
  Budget budget;
  double activation;  ///< of one chunk, in whole stages
  double growth;      ///< of an activation by its backward_input; a whole backward has none
  double rounding;    ///< times that differ by less are the same
};

/// Returns a cost that no schedule within the budget can beat.
double lower_bound(const Problem& problem);

}  // namespace triax::parallel::synthesis
