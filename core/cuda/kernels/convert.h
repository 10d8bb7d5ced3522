#pragma once
#include "triax/core/functors/fast.h"
#include "triax/core/shared/convert.h"

namespace triax::cuda::TRIAX_TARGET {

using fn::fast_divide;
using fn::fast_exp;

}  // namespace triax::cuda::TRIAX_TARGET
