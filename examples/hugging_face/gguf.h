#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
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

/// The keys and values at the beginning of a GGUF file, as bytes.
class GgufKeys {
 public:
  void add(std::string_view key, uint32_t value) { begin(key, 4), put(value); }
  void add(std::string_view key, float value) { begin(key, 6), put(value); }
  void add_flag(std::string_view key, bool value) { begin(key, 7), put(value); }
  void add(std::string_view key, std::string_view value) { begin(key, 8), text(value); }
  void add(std::string_view key, const std::vector<std::string>& all) {
    array(key, 8, all.size());
    for (auto& one : all) text(one);
  }
  /// Adds an array of i32 or f32.
  template <class T> void add(std::string_view key, const std::vector<T>& all) {
    array(key, std::is_same_v<T, float> ? 6 : 5, all.size());
    for (T one : all) put(one);
  }

  void text(std::string_view value) { put(uint64_t(value.size())), bytes_ += value; }
  template <class T> void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type) { ++count_, text(key), put(type); }
  void array(std::string_view key, uint32_t type, size_t size) {
    begin(key, 9), put(type), put(uint64_t(size));
  }

  uint64_t count_ = 0;
  std::string bytes_;
};

/// Adds the tokenizer in a directory of Hugging Face's files for a model of `vocabulary` rows.
/// Returns what a user should know of it. Throws Error 65 for a damaged tokenizer.json.
std::string add_tokenizer(GgufKeys& keys, const std::string& directory, int64_t vocabulary);

}  // namespace triax::hf
