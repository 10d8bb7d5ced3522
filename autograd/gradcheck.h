#pragma once
#include <functional>

#include "core/tensor.h"

namespace triax {

struct GradcheckOptions {
  double step = 1e-6;       ///< of the central difference
  double tolerance = 1e-6;  ///< relative to 1 + the larger of the two slopes
};

/// Compares the gradients of sum(weights * fn(inputs)), with fixed random weights, to central
/// differences, element by element. Inputs must be f64; they are made leaves. Throws Error 70 that
/// names input, element and both slopes where they differ.
void gradcheck(const std::function<Tensor(const Tensors&)>& fn, Tensors inputs,
               const GradcheckOptions& options = {});

}  // namespace triax
