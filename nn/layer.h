#pragma once
#include <functional>
#include <string>
#include <vector>

#include "triax/nn/batch.h"
#include "triax/nn/module.h"

namespace triax::nn {

/// The purpose of a run of layers. Inference needs no gradients.
enum class Purpose { training, inference };

/// One layer of a model, which is an ordered list of them: a pipeline places them on its stages,
/// ZeRO-3 gathers them before use. They know nothing of either.
struct Layer {
  /// Maps the result of the layer before (undefined for the first) to the input of the next.
  using Run = std::function<Tensor(const Tensor& x, const Batch& batch)>;
  std::string name;
  std::vector<Module*> uses;  ///< whose parameters `run` reads
  Run run;
  /// A `run` that saves less for backward (selective activation recomputation: Korthikanti et al.,
  /// 2022, section 5). Empty: the layer has no such form.
  Run selective = {};
  bool reads_batch = true;  ///< no: a stage of such layers alone needs no data
  /// True if the layer, under --bitwise, may see the samples of a micro-batch at once; others see
  /// them one by one. It promises: rows of different samples do not mix; parameters are used in
  /// products, norms, embedding and x + bias alone, and there dim 0 has as many rows of each
  /// sample, one sample after the other, as in x and the result; and with sequence parallelism,
  /// where a rank has a share of each sample's rows, the layer leaves the places of rows to
  /// parallel::TensorParallel and parallel::Dropout.
  bool independent = false;
};
using Layers = std::vector<Layer>;

}  // namespace triax::nn
