#pragma once
#include "nn/layer.h"

namespace triax::parallel {

/// Sample `i` of a micro-batch, as a micro-batch of its own.
nn::Batch sample_of(const nn::Batch& batch, int64_t i);

/// A layer that knows nothing of the op that made its input, such as a gelu whose slope its product
/// would apply: so it computes alike behind a cut and without one.
nn::Layer::Run apart(nn::Layer::Run plain);

/// A layer that sees the samples of a micro-batch one after the other, so that what it computes of
/// one does not depend on how many there are. What it returns of them follows each other along dim
/// 0; of losses, one element each, it makes [samples]. Dim 0 of x is a multiple of the samples,
/// which `batch` must therefore count. Throws Error 78 if it is not.
nn::Layer by_sample(nn::Layer layer);

}  // namespace triax::parallel
