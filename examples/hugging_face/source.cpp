#include "examples/hugging_face/source.h"

#include <algorithm>
#include <memory>

#include "triax/core/check.h"
#include "triax/nn/state.h"

namespace triax::hf {
namespace {

constexpr uint64_t largest_file = uint64_t(1) << 20;
constexpr uint64_t largest_size = 2147483647;
constexpr int deepest = 32;
constexpr const char* one_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr uint64_t largest_index = uint64_t(64) << 20;

/// Returns files by tensor, as the index has them.
std::map<std::string, std::string> read_index(const std::string& path, const Files& files) {
  nn::JsonReader json(files.read(path, largest_index), path, "the file", 8);
  std::map<std::string, std::string> map;
  for (auto& [tensor, file] : json.at("weight_map").members()) {
    std::string name = map[tensor] = file.text();
    check_input(name.ends_with(".safetensors") && name.find('/') == name.npos, Exit::data,
                "{}: weight_map has tensor {} in `{}`; expected the name of a safetensors file "
                "beside it",
                path, printable(tensor), printable(name));
  }
  return map;
}

std::shared_ptr<nn::TensorFile> open(const std::string& path, const Files& files) {
  constexpr std::string_view pointer = "version https://git-lfs";
  File file = files.open(path);
  std::string begin(std::min<uint64_t>(file.size(), pointer.size()), '\0');
  file.read_at(0, begin.data(), begin.size());
  check_input(begin != pointer, Exit::data,
              "{}: this is a pointer of Git LFS; expected the file that it stands for\n  In the "
              "clone: git lfs pull.",
              path);
  return std::make_shared<nn::TensorFile>(path, files);
}

void add(Weights& all, const std::shared_ptr<nn::TensorFile>& file, const std::string& prefix) {
  for (const nn::TensorEntry& entry : file->entries()) {
    bool prefixed = !prefix.empty() && entry.name.starts_with(prefix);
    std::string name = prefixed ? entry.name.substr(prefix.size()) : entry.name;
    Stored stored{entry.dtype, entry.shape, file->path(),
                  [file, full = entry.name] { return file->read(full); }};
    check_input(all.emplace(name, std::move(stored)).second, Exit::data,
                "{}: tensor {} is there twice", file->path(), printable(name));
  }
}

Weights open_parts(const std::string& directory, const std::string& prefix, const Files& files) {
  std::string index = directory + "/" + index_file;
  auto names = files.list(directory);
  auto map = read_index(index, files);
  std::map<std::string, std::shared_ptr<nn::TensorFile>> parts;
  Weights all;
  for (auto& [tensor, file] : map) {
    check_input(std::ranges::count(names, file) > 0, Exit::not_found,
                "{}: weight_map names {}, which is not there", index, printable(file));
    auto& part = parts[file];
    if (!part) {
      part = open(directory + "/" + file, files);
      add(all, part, prefix);
    }
    check_input(part->find(tensor) != nullptr, Exit::data,
                "{}: weight_map has tensor {} in {}, which has none of this name", index,
                printable(tensor), file);
  }
  return all;
}

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

Weights open_weights(const std::string& directory, const std::string& prefix, const Files& files) {
  auto names = files.list(directory);
  auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
  if (!has(one_file) && has(index_file)) return open_parts(directory, prefix, files);
  check_input(has(one_file), Exit::not_found, "{}: there is neither {} nor {}{}", directory,
              one_file, index_file,
              has("pytorch_model.bin")
                  ? "\n  pytorch_model.bin is not read: save the model in Python with "
                    "save_pretrained(DIR), which writes safetensors."
                  : "");
  Weights all;
  add(all, open(directory + "/" + one_file, files), prefix);
  return all;
}

}  // namespace triax::hf
