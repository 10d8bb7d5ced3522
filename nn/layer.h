#pragma once
#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace triax::nn {

/// One micro-batch of sequences, as every layer of a model sees it.
struct Batch {
  Tensor ids;         ///< [rows] i32: whole sequences of `time` tokens, row-major
  Tensor targets;     ///< [rows] i32: the token that follows, -1: counts nothing; undefined: none
  int64_t time = 0;   ///< tokens in a sequence
  int64_t first = 0;  ///< serial number of row 0 since the start of training, or nn::evaluation
};

/// What layers are run for. Inference needs no gradients.
enum class Purpose { training, inference };

/// A model is an ordered list of layers: what a pipeline places on its stages and ZeRO-3 gathers
/// before use. They know nothing of either.
struct Layer {
  std::string name;
  std::vector<Module*> uses;  ///< whose parameters `run` reads
  /// What the layer before returned (undefined for the first) to what the next will get.
  std::function<Tensor(const Tensor& x, const Batch& batch)> run;
  double cost = 1;  ///< of one micro-batch, in any unit: pipelines balance it
};
using Layers = std::vector<Layer>;

}  // namespace triax::nn
