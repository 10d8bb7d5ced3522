#pragma once
#include <functional>
#include <string>

#include "nn/layer.h"

namespace triax::parallel {

/// Sees what each layer returned, as this rank has it.
using LayerObserver =
    std::function<void(const std::string& layer, const Tensor& y, const nn::Batch& batch)>;
/// One that is shown what the layer made of each sample, however many it saw.
LayerObserver each_sample(LayerObserver observer);

/// A layer that knows nothing of the op that made its input, such as a gelu whose slope its product
/// would apply: so it computes alike behind a cut and without one.
nn::Layer::Run apart(nn::Layer::Run plain);

/// A layer whose products have the same bits of a rank's share of the rows as of all
/// (autograd::RowsAlike).
nn::Layer::Run rows_alike(nn::Layer::Run run);

/// A layer that computes the same of each sample of a micro-batch, however many there are: it sees
/// one after the other or, if it is `independent`, all at once. What it returns of them follows
/// each other along dim 0; of losses, one element each, it makes [samples]. Dim 0 of x is a
/// multiple of the samples, which `batch` must therefore count. Throws Error 78 if it is not, 65
/// for a training batch whose inputs (nn::input_shapes) have other shapes than `inputs`, which any
/// mesh would have.
nn::Layer by_sample(nn::Layer layer, const std::vector<Shape>& inputs);

}  // namespace triax::parallel
