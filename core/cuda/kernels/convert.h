#pragma once
#include "core/functors/fast.h"
#include "core/shared/convert.h"

namespace triax::cuda::TRIAX_TARGET {

using fn::fast_divide;
using fn::fast_exp;

}  // namespace triax::cuda::TRIAX_TARGET
