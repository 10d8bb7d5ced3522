#pragma once
#include <functional>
#include <map>
#include <string>

#include "triax/core/tensor.h"

namespace triax::parallel {

/// Adds something up over a micro-batch's rows: `prediction` is the last layer's output for it
/// without target. With context parallelism a rank has some rows of each sample, so what counts
/// whole samples is another number with each cp. Both are on the CPU. Blanks, which fill up the
/// last micro-batch, must add nothing.
using Score = std::function<double(const Tensor& prediction, const Tensor& target)>;
using Scores = std::map<std::string, Score>;  ///< by name

/// Counts targets [rows] (i32 or i64) that are among the k largest predictions [rows, classes]; of
/// equal ones the first counts. A target of -1, or of a prediction of NaN, is among none. k >= 1.
Score top_k(int64_t k);

}  // namespace triax::parallel
