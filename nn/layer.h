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
  /// With --bitwise such a layer sees the samples of a micro-batch at once, others one by one. A
  /// promise: rows of different samples do not mix; and wherever a parameter is used, in products,
  /// norms, embedding and x + bias alone, dim 0 has as many rows of each sample, one sample behind
  /// the other, as in x and the result; and with sequence parallelism, where a rank has a share of
  /// each sample's rows, the layer leaves the whereabouts of rows to parallel::TensorParallel and
  /// parallel::Dropout.
  bool independent = false;
};
using Layers = std::vector<Layer>;

}  // namespace triax::nn
