#pragma once
#include <functional>
#include <string>
#include <vector>

#include "nn/batch.h"
#include "nn/module.h"

namespace triax::nn {

/// What layers are run for. Inference needs no gradients.
enum class Purpose { training, inference };

/// A model is an ordered list of layers: what a pipeline places on its stages and ZeRO-3 gathers
/// before use. They know nothing of either.
struct Layer {
  /// What the layer before returned (undefined for the first) to what the next will get.
  using Run = std::function<Tensor(const Tensor& x, const Batch& batch)>;
  std::string name;
  std::vector<Module*> uses;  ///< whose parameters `run` reads
  Run run;
  /// The same values, keeping less for backward (selective activation recomputation: Korthikanti et
  /// al., 2022, section 5). Empty: the layer has no such form.
  Run selective = {};
  bool reads_batch = true;  ///< no: a stage of such layers needs no data
};
using Layers = std::vector<Layer>;

}  // namespace triax::nn
