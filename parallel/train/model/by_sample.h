#pragma once
#include <functional>
#include <string>

#include "triax/nn/layer.h"

namespace triax::parallel {

/// Is called with each layer's output, as this rank has it.
using LayerObserver =
    std::function<void(const std::string& layer, const Tensor& y, const nn::Batch& batch)>;
/// Returns an observer that passes on a layer's output of each sample, however many the layer saw.
LayerObserver each_sample(LayerObserver observer);

/// Returns a layer that is independent of the op that made its input, such as a gelu whose slope
/// its product would apply: it computes alike behind a cut and without one.
nn::Layer::Run apart(nn::Layer::Run plain);

/// Returns a layer whose products have the same bits for a rank's share of the rows as for all
/// (autograd::RowsAlike).
nn::Layer::Run rows_alike(nn::Layer::Run run);

/// Returns a layer that computes each sample of a micro-batch alike, however many there are: it
/// sees one after the other or, if it is `independent`, all at once. Its outputs are joined along
/// dim 0; losses, one element each, become [samples]. Dim 0 of x is a multiple of the samples,
/// which `batch` must therefore count. Throws Error 78 if it is not, 65 for a training batch whose
/// inputs (nn::input_shapes) have other shapes than `inputs`, which any mesh would have.
nn::Layer by_sample(nn::Layer layer, const std::vector<Shape>& inputs);

}  // namespace triax::parallel
