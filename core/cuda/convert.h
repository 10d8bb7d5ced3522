#pragma once
#include "core/convert.h"
#include "core/functors/fast.h"

namespace triax::cuda::TRIAX_TARGET {

using fn::fast_divide;
using fn::fast_exp;

}  // namespace triax::cuda::TRIAX_TARGET
