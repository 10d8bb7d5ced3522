#pragma once
#include "autograd/record.h"

// A product of a GELU's output gives the gradient of the GELU's input at once: the slope is applied
// where the product writes, and the output's gradient is never there.
namespace triax::autograd {

/// Record `y` = gelu(x), which is computed already; `kept`: x's values, contiguous. Returns y.
Tensor record_gelu(Tensor y, const Tensor& x, const Tensor& kept);

/// That x, contiguous and with its history, if `y` was recorded so; else undefined.
Tensor gelu_input(const Tensor& y);

}  // namespace triax::autograd
