#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "nn/json.h"

namespace triax::hf {

/// The config.json of a Hugging Face model, untrusted. Every failure is Error 65 that names the
/// file, the key, its value, and what was expected.
class ModelConfig {
 public:
  /// Throws Error 66 if there is no such file, 65 if its model_type is not `type` or its weights
  /// are quantized.
  ModelConfig(const std::string& path, const std::string& type, const Files& files = disk());

  /// The same of the text of such a file.
  ModelConfig(const std::string& text, const std::string& path, const std::string& type);

  const std::string& path() const { return path_; }
  /// A whole number, 1 or more; if it is absent or null, `otherwise`, or an error without that.
  int64_t size(const char* key, std::optional<int64_t> otherwise = {}) const;
  /// A number; if it is absent or null, `otherwise`, or an error without that.
  double real(const char* key, std::optional<double> otherwise = {}) const;
  std::string text(const char* key) const { return json_.at(key).text(); }
  /// Throws unless the value, as JSON, is one of `allowed`, or absent, which means the first.
  /// `why`: what a model here has in its place.
  void expect(const char* key, const std::vector<std::string>& allowed,
              const std::string& why) const;
  /// `otherwise` if it is absent or null.
  bool flag(const char* key, bool otherwise) const;
  /// The value is there and not null.
  bool has(const char* key) const;
  /// The object under `key`, if there is one.
  std::optional<ModelConfig> object(const char* key) const;

 private:
  ModelConfig(std::string path, nn::JsonReader json);
  std::string path_;
  nn::JsonReader json_;
};

}  // namespace triax::hf
