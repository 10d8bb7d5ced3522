#pragma once
#include <string>
#include <vector>

#include "triax/core/io/files.h"
#include "triax/nn/state.h"

namespace triax::hf {

/// A model as transformers has it, to be written as one file.
struct HubModelParts {
  std::string config;                    ///< the text of config.json
  std::vector<nn::NamedTensor> tensors;  ///< by their names there, f32
  bool transposed = false;               ///< matrices of layers are [in, out]
  std::string directory;                 ///< with the tokenizer's files, if there are any
};

/// Writes a GGUF file of version 3, which llama.cpp reads (docs/gguf.md of
/// github.com/ggml-org/ggml; names of keys and tensors: gguf-py/gguf/constants.py of
/// github.com/ggml-org/llama.cpp): matrices in `dtype`, all else in f32. Returns what a user should
/// know of its tokenizer. Throws Error 78 for mixtures of experts and for a window that is shorter
/// than the context.
std::string write_gguf(const HubModelParts& model, DType dtype, const std::string& path,
                       const Files& files);

}  // namespace triax::hf
