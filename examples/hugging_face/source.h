#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/core/tensor.h"

namespace triax::hf {

/// The config.json of a Hugging Face model, untrusted. Every failure is Error 65 that names the
/// file, the key, its value, and what was expected.
class ModelConfig {
 public:
  /// The values of model_type that a program knows.
  using Types = std::vector<std::string>;
  /// Throws Error 66 if there is no such file, 65 if its model_type is none of `types` or its
  /// weights are quantized.
  ModelConfig(const std::string& path, const Types& types, const Files& files = disk());

  /// Takes the text of such a file.
  ModelConfig(const std::string& text, const std::string& path, const Types& types);

  const std::string& path() const { return path_; }
  /// Returns a whole number, 1 or more; if absent or null, `otherwise`, or an error without that.
  int64_t size(const char* key, std::optional<int64_t> otherwise = {}) const;
  /// Returns a number; if it is absent or null, `otherwise`, or an error without that.
  double real(const char* key, std::optional<double> otherwise = {}) const;
  std::string text(const char* key) const { return json_.at(key).text(); }
  /// Returns a value as JSON, without spaces; null if it is absent.
  std::string literal(const char* key) const { return has(key) ? json_.at(key).literal() : "null"; }
  /// Throws unless the value, as JSON, is one of `allowed`, or absent, which means the first.
  /// `why`: what models here have instead.
  void expect(const char* key, const std::vector<std::string>& allowed,
              const std::string& why) const;
  /// Returns a flag; `otherwise` if it is absent or null.
  bool flag(const char* key, bool otherwise) const;
  /// True if the value is there and not null.
  bool has(const char* key) const { return json_.has(key) && json_.at(key).literal() != "null"; }
  /// True if the key is there, its value perhaps null.
  bool names(const char* key) const { return json_.has(key); }
  /// Returns the object under `key`, if there is one.
  std::optional<ModelConfig> object(const char* key) const;

 private:
  ModelConfig(std::string path, nn::JsonReader json);
  std::string path_;
  nn::JsonReader json_;
};

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

/// A model that is to be imported.
struct Source {
  ModelConfig config;
  Weights weights;
};

}  // namespace triax::hf
