#pragma once
#include <functional>
#include <map>
#include <string>

#include "triax/core/io/files.h"
#include "triax/core/tensor.h"

namespace triax::hf {

/// A tensor in some file, read when asked for.
struct Stored {
  DType dtype = f32;
  Shape shape;
  std::string file;  ///< the file's name, for messages
  std::function<Tensor()> read;
};
/// The tensors of a model by name.
using Weights = std::map<std::string, Stored>;

/// Opens the tensors of a Hugging Face model in a directory: of model.safetensors, or of the files
/// that model.safetensors.index.json names. Headers are read and checked at once. Names are given
/// without `prefix` (`transformer.`), if they have it. Throws Error 66 for a missing file, 65 for a
/// damaged one and for an index that does not fit its files.
Weights open_weights(const std::string& directory, const std::string& prefix, const Files& files);

}  // namespace triax::hf
