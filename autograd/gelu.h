#pragma once
#include "triax/autograd/record.h"

// A product of a GELU's output gives the gradient of the GELU's input at once: the slope is applied
// where the product writes, and the output's gradient is never stored.
namespace triax::autograd {

/// Records `y` = gelu(x), computed already, and returns y; `kept`: x's values, contiguous.
Tensor record_gelu(Tensor y, const Tensor& x, const Tensor& kept);

/// Returns the x of record_gelu(), contiguous and with its history; undefined for any other `y`.
Tensor gelu_input(const Tensor& y);

}  // namespace triax::autograd
