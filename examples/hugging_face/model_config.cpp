#include "examples/hugging_face/model_config.h"

#include <algorithm>

#include "triax/core/check.h"

namespace triax::hf {
namespace {

constexpr uint64_t largest_file = uint64_t(1) << 20;
constexpr uint64_t largest_size = 2147483647;
constexpr int deepest = 32;

}  // namespace

ModelConfig::ModelConfig(std::string path, nn::JsonReader json)
    : path_(std::move(path)), json_(std::move(json)) {}

ModelConfig::ModelConfig(const std::string& path, const Types& types, const Files& files)
    : ModelConfig(files.read(path, largest_file), path, types) {}

ModelConfig::ModelConfig(const std::string& text, const std::string& path, const Types& types)
    : ModelConfig(path, nn::JsonReader(text, path, "the file", deepest)) {
  std::string found = json_.at("model_type").text();
  std::string program = found == "gpt2" ? "minigpt" : "triax-llama";  // reads most others
  check_input(std::ranges::count(types, found) > 0, Exit::data,
              "{}: model_type is `{}`; expected `{}` for this program{}", path_, printable(found),
              join(types, "` or `"),
              std::ranges::count(types, "gpt2") > 0 || found == "gpt2"
                  ? fmt::format("\n  Use the program `{}`.", program)
                  : "");
  expect("quantization_config", {"null"}, "weights here are not quantized");
}

int64_t ModelConfig::size(const char* key, std::optional<int64_t> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  int64_t value = int64_t(json_.at(key).number(largest_size));
  check_input(value >= 1, Exit::data, "{}: {} is {}; expected 1 or more", path_, key, value);
  return value;
}

double ModelConfig::real(const char* key, std::optional<double> otherwise) const {
  return otherwise && !has(key) ? *otherwise : json_.at(key).real();
}

void ModelConfig::expect(const char* key, const std::vector<std::string>& allowed,
                         const std::string& why) const {
  if (!json_.has(key)) return;
  std::string value = json_.at(key).literal();
  check_input(std::ranges::count(allowed, value) > 0, Exit::data, "{}: {} is {}; expected {}: {}",
              path_, key, printable(value), join(allowed, " or "), why);
}

bool ModelConfig::flag(const char* key, bool otherwise) const {
  return has(key) ? json_.at(key).flag() : otherwise;
}

std::optional<ModelConfig> ModelConfig::object(const char* key) const {
  if (!has(key)) return {};
  (void)json_.at(key).members();  // an object
  return ModelConfig(path_, json_.at(key));
}

}  // namespace triax::hf
