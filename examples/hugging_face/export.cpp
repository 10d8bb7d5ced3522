#include <algorithm>
#include <map>
#include <optional>

#include "examples/hugging_face/adapters.h"
#include "examples/hugging_face/conversion.h"
#include "examples/hugging_face/gguf.h"
#include "examples/hugging_face/stream.h"
#include "examples/hugging_face/tokenizer_files.h"
#include "triax/core/check.h"
#include "triax/nn/state.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/train/runs/initial_weights.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::hf {
namespace {

/// Gives the settings of the model their values of the run that saved the checkpoint.
void take_settings(const Architecture& a, const parallel::Checkpoint& checkpoint) {
  parallel::restore(a.settings, checkpoint);
  auto table = checkpoint.tensors().find(a.table);
  for (auto& [key, size] : a.sizes)  // the vocabulary may be the tokenizer's
    if (*size == 0 && table != checkpoint.tensors().end()) *size = table->second.full[0];
}

void check_tensors(const Architecture& a, const parallel::Checkpoint& checkpoint,
                   const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    auto found = checkpoint.tensors().find(rule.ours);
    check_input(
        found != checkpoint.tensors().end() && found->second.full == rule.full, Exit::data,
        "checkpoint {}: tensor {} {}; expected {}, in a checkpoint of {}", checkpoint.path(),
        rule.ours,
        found == checkpoint.tensors().end() ? "is missing" : "is " + str(found->second.full),
        rule.full, a.program);
  }
}

/// Reads what a part's view sees of a parameter.
using Read = std::function<Tensor(const Rule&, const Part&)>;

/// Returns all tensors of the other model, each of which is read when it is written; what is given
/// must outlive them.
std::vector<nn::NamedTensor> tensors_of(const std::vector<Rule>& rules, DType dtype,
                                        const Read& read, Progress& progress) {
  std::vector<nn::NamedTensor> all;
  for (const Rule& rule : rules)
    for (const Part& part : rule.parts) {
      auto fill = [&, dtype](const Tensor& theirs) {
        Tensor ours = read(rule, part);
        Tensor place = part.view ? part.view(ours) : ours;
        copy_(theirs.view(place.shape()), place);
        check_range(part.name, theirs);
        progress.add(theirs.bytes());
      };
      all.push_back({part.name, deferred(part.shape, dtype, fill)});
    }
  return all;
}

/// Writes tensors into files of at most `limit` bytes, or one tensor each, with an index if there
/// are several.
void write_weights(const std::vector<nn::NamedTensor>& all, double limit, const std::string& to,
                   const Files& files) {
  std::vector<std::vector<nn::NamedTensor>> shards(1);
  uint64_t total = 0, here = 0;
  for (auto& tensor : all) {
    uint64_t bytes = tensor.value.bytes();
    if (here > 0 && double(here + bytes) > limit) shards.emplace_back(), here = 0;
    shards.back().push_back(tensor);
    here += bytes, total += bytes;
  }
  std::string map;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = "model.safetensors";
    if (shards.size() > 1)
      name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    nn::write_tensors(to + "/" + name, shards[i], {{"format", "pt"}}, files);
    for (auto& tensor : shards[i])
      map +=
          fmt::format("{}\n    {}: \"{}\"", map.empty() ? "" : ",", nn::quoted(tensor.name), name);
  }
  if (shards.size() > 1)
    files.write(
        to + "/model.safetensors.index.json",
        fmt::format(
            "{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n",
            total, map));
}

bool is_tokenizer(const std::string& name) {
  return name == "tokenizer.json" || name == "tokenizer.model" || name == "vocab.json";
}

/// Returns the config.json in a directory with a tokenizer's files, if there is one.
std::optional<nn::JsonReader> config_in(const std::string& directory) {
  std::string path = directory + "/config.json";
  if (std::ranges::count(disk().list(directory), "config.json") == 0) return {};
  return nn::JsonReader(disk().read(path, 1 << 20), path, "the file", 32);
}

/// Returns the type of the model whose tokenizer's files are in a directory; empty: it is not
/// known.
std::string type_in(const std::string& directory) {
  auto config = config_in(directory);
  bool known = config && config->has("model_type") && config->at("model_type").is_text();
  return known ? config->at("model_type").text() : "";
}

/// Returns the directory of the tokenizer's files: as named, or beside the checkpoint.
std::string files_beside(const parallel::Checkpoint& checkpoint, const ExportOptions& o) {
  if (!o.tokenizer.empty()) return o.tokenizer;
  return parent_directory(checkpoint.path()) + "/" + text::tokenizer_folder;
}

/// Copies those files, or else writes the checkpoint's tokenizer; prints which.
void give_tokenizer(const ExportOptions& o, const std::string& type,
                    const parallel::Checkpoint& checkpoint, const std::string& to,
                    const Files& files) {
  std::string from = files_beside(checkpoint, o);
  auto names = text::copy_tokenizer_files(from, to, files);
  bool found = std::ranges::any_of(names, is_tokenizer);
  check_input(found || o.tokenizer.empty(), Exit::not_found,
              "export: tokenizer={} has no tokenizer.json, tokenizer.model or vocab.json",
              o.tokenizer);
  // Files name the class that transformers reads them with, or it is that of this model's type.
  bool named = std::ranges::count(names, "tokenizer_config.json") > 0 || type_in(from) == type;
  if (!found || (o.tokenizer.empty() && !named))
    for (auto& name : write_tokenizer_files(checkpoint.state(), to, files))
      if (std::ranges::count(names, name) == 0) names.push_back(name);
  std::string cure = "--tokenizer DIR names a directory that has some";
  auto settings = parallel::saved_settings(checkpoint);
  bool foreign = settings["tokenizer"].starts_with("\"gpt2:") || settings["init"].size() > 2;
  bool any = std::ranges::any_of(names, is_tokenizer);
  if (!any) fmt::print("no tokenizer files: the checkpoint has no BPE; {}\n", cure);
  else if (!found && foreign)
    fmt::print("no chat template or other files of the tokenizer are in {}; {}\n", from, cure);
  if (!names.empty()) fmt::print("{}: {}\n", any ? "tokenizer files" : "copied", join(names, ", "));
}

/// Returns a key such as `eos_token_id` of a config.json as JSON: null, or tokens below
/// `vocabulary`.
std::optional<std::string> end_in(const nn::JsonReader& config, const char* key,
                                  int64_t vocabulary) {
  if (!config.has(key)) return {};
  auto value = config.at(key);
  if (value.is_null()) return "null";
  try {
    auto limit = uint64_t(vocabulary - 1);
    std::string text = value.literal();
    if (!text.starts_with('[')) return std::to_string(value.number(limit));
    for (auto& one : value.elements(64)) (void)one.number(limit);
    return text;
  } catch (const Error&) {  // tokens of another tokenizer
    return {};
  }
}

/// Returns the tokens that begin and end texts, without which `generate` of transformers does not
/// end: those of the config.json of the model that the tokenizer's files came from, or else of the
/// tokenizer in `directory`, if it can be read.
Keys ends_of_text(const std::string& from, const std::string& directory, int64_t vocabulary) {
  std::map<std::string, std::string> ends{
      {"bos_token_id", "null"}, {"eos_token_id", "null"}, {"pad_token_id", "null"}};
  try {
    auto tokenizer = text::find_tokenizer(directory);
    if (tokenizer && tokenizer->size() > vocabulary)
      fmt::print(
          "the tokenizer has {} tokens, and the model {} rows: it knows nothing of the "
          "others\n",
          tokenizer->size(), vocabulary);
    if (tokenizer)
      for (const Role& r : roles_in(*tokenizer))
        ends[std::string(r.key) + "_id"] = std::to_string(r.number);
  } catch (const Error& e) {
    // A kind of tokenizer, or a set of files, that only transformers reads.
    if (e.code() != Exit::data && e.code() != Exit::not_found) throw;
  }
  if (auto config = config_in(from))
    for (auto& [key, value] : ends)
      value = end_in(*config, key.c_str(), vocabulary).value_or(value);
  return {ends.begin(), ends.end()};
}

/// Returns a config.json. `wanted`: Architecture::fitting.
std::string config_text(const Architecture& a, const std::string& wanted, DType dtype,
                        const Keys& ends) {
  Class fitting = a.fitting(wanted);
  std::string text = fmt::format("{{\n  \"architectures\": [{}],\n  \"model_type\": {}",
                                 nn::quoted(fitting.name), nn::quoted(fitting.type));
  auto add = [&](std::string_view key, std::string_view value) {
    text += fmt::format(",\n  {}: {}", nn::quoted(key), value);
  };
  for (auto& [key, size] : a.sizes) add(key, std::to_string(*size));
  for (const FixedKey& f : a.fixed) add(f.key, f.allowed[0]);
  for (auto& [key, value] : a.config(wanted)) add(key, value);
  for (auto& [key, value] : ends) add(key, value);  // if null: transformers has its own defaults
  add("torch_dtype", nn::quoted(dtype == f32 ? "float32" : dtype == bf16 ? "bfloat16" : "float16"));
  return text + "\n}\n";
}

int64_t parameters_of(const std::vector<Rule>& rules) {
  int64_t all = 0;
  for (const Rule& rule : rules) all += rule.parts.empty() ? 0 : rule.full.numel();
  return all;
}

/// Writes the weights, merged with `adapters`, and all that goes with them.
void write_model(const Architecture& a, const ExportOptions& o, parallel::Checkpoint& checkpoint,
                 const Adapters& adapters, const Files& files) {
  auto rules = a.rules();
  NewDirectory to(o.to, files);
  Progress progress("exported", uint64_t(parameters_of(rules)) * size_of(o.dtype));
  Read read = [&](const Rule& rule, const Part& part) {
    parallel::Part stored{.full = rule.full};
    if (part.index >= 0) stored.dim = 0, stored.begin = part.index, stored.length = 1;
    return adapters.merged(rule.ours,
                           parallel::stored_weight(checkpoint, rule.ours, stored, o.weights));
  };
  std::string from = files_beside(checkpoint, o), wanted = type_in(from);
  give_tokenizer(o, a.fitting(wanted).type, checkpoint, to.work(), files);
  std::string config =
      config_text(a, wanted, o.dtype, ends_of_text(from, to.work(), *a.sizes.back().second));
  if (!o.to.ends_with(".gguf")) {
    write_weights(tensors_of(rules, o.dtype, read, progress), o.shard_gb * 1e9, to.work(), files);
    files.write(to.work() + "/config.json", config);
    return to.publish();
  }
  if (std::ranges::count(files.list(to.work()), "tokenizer.json") == 0)
    (void)write_tokenizer_files(checkpoint.state(), to.work(), files);  // has vocab.json at most
  auto tensors = tensors_of(rules, f32, read, progress);
  std::string file = to.work() + "/model.gguf";
  fmt::print("{}", write_gguf({config, tensors, a.transposed, to.work()}, o.dtype, file, files));
  files.rename(file, o.to);
  files.sync_directory(parent_directory(o.to));
}

}  // namespace

void export_model(const Architecture& a, const ExportOptions& o, const Files& files) {
  check_input(!o.checkpoint.empty() && !o.to.empty(), Exit::config,
              "export: --checkpoint and --to must be given: RUN/step-N or a run directory, and a "
              "new directory for the {}",
              a.name);
  bool one_file = o.to.ends_with(".gguf");
  check_input(!one_file || !files.exists(o.to), Exit::config,
              "export: {} is there already; expected a new file\n  Nothing was changed.", o.to);
  check_input(!one_file || !o.peft, Exit::config,
              "export: peft with a file for llama.cpp; expected a directory as --to");
  auto alone = parallel::single_rank();
  auto checkpoint = parallel::open_checkpoint(o.checkpoint, *alone, files);
  parallel::check_weights(checkpoint, o.weights);
  take_settings(a, checkpoint);
  check_layers(a, checkpoint.tensors().size(), checkpoint.path());
  check_tensors(a, checkpoint, a.rules());
  Adapters adapters(checkpoint, a.lora, o.weights);
  if (o.peft) {
    NewDirectory to(o.to, files);
    adapters.write(a, to.work(), files);
    to.publish();
    return fmt::print("exported the adapters of {} to {}, for PEFT\n", checkpoint.path(), o.to);
  }
  write_model(a, o, checkpoint, adapters, files);
  std::string name = a.fitting(type_in(files_beside(checkpoint, o))).name;
  fmt::print("exported {} parameters of {} to {}, as a {} in {}\n", parameters_of(a.rules()),
             checkpoint.path(), o.to, name, o.dtype);
}

}  // namespace triax::hf
