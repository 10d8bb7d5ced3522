#include "core/check.h"
#include "examples/hugging_face/conversion.h"
#include "examples/hugging_face/stream.h"
#include "examples/hugging_face/tokenizer_files.h"
#include "nn/state.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/train/initial_weights.h"
#include "parallel/train/run_directory.h"

namespace triax::hf {
namespace {

/// Gives the settings of the model their values of the run that saved the checkpoint.
void take_settings(const Architecture& a, const parallel::Checkpoint& checkpoint) {
  auto saved = parallel::saved_settings(checkpoint);
  for (auto& s : a.settings) {
    auto known = saved.find(s.name);
    check_input(known != saved.end(), Exit::data,
                "checkpoint {}: its settings have no {}; expected a checkpoint of {}",
                checkpoint.path(), s.name, a.program);
    std::string value = known->second;
    if (auto table = checkpoint.tensors().find(a.table);
        s.name == "vocab" && value == "0" && table != checkpoint.tensors().end())
      value = std::to_string(table->second.full[0]);  // the tokenizer's
    parallel::assign(s, value,
                     {Exit::data, fmt::format("checkpoint {}: {}", checkpoint.path(), s.name)});
  }
}

void check_tensors(const parallel::Checkpoint& checkpoint, const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    auto found = checkpoint.tensors().find(rule.ours);
    check_input(
        found != checkpoint.tensors().end() && found->second.full == rule.full, Exit::data,
        "checkpoint {}: tensor {} {}; expected {}", checkpoint.path(), rule.ours,
        found == checkpoint.tensors().end() ? "is missing" : "is " + str(found->second.full),
        rule.full);
  }
}

/// All tensors of the other model, each of which is read when it is written.
std::vector<nn::NamedTensor> tensors_of(const std::vector<Rule>& rules,
                                        parallel::Checkpoint& checkpoint, Progress& progress) {
  std::vector<nn::NamedTensor> all;
  for (const Rule& rule : rules)
    for (const Part& part : rule.parts) {
      auto fill = [&](const Tensor& theirs) {
        Tensor ours = parallel::stored_weight(checkpoint, rule.ours, {.full = rule.full});
        Tensor place = part.view ? part.view(ours) : ours;
        copy_(theirs.view(place.shape()), place);
        progress.add(theirs.bytes());
      };
      all.push_back({part.name, deferred(part.shape, f32, fill)});
    }
  return all;
}

std::string config_text(const Architecture& a) {
  std::string text = fmt::format("{{\n  \"architectures\": [{}],\n  \"model_type\": {}",
                                 nn::quoted(a.name), nn::quoted(a.type));
  for (auto& [key, value] : a.config()) text += fmt::format(",\n  {}: {}", nn::quoted(key), value);
  return text + ",\n  \"torch_dtype\": \"float32\"\n}\n";
}

/// Where the run that saved a checkpoint keeps the files of its tokenizer.
std::string tokenizer_files_of(const parallel::Checkpoint& checkpoint) {
  return parent_directory(checkpoint.path()) + "/" + tokenizer_folder;
}

}  // namespace

void export_model(const Architecture& a, const ExportOptions& o, const Files& files) {
  check_input(!o.checkpoint.empty() && !o.to.empty(), Exit::config,
              "export: --checkpoint and --to must be given: RUN/step-N or a run directory, and a "
              "new directory for the {}",
              a.name);
  auto alone = parallel::single_rank();
  auto checkpoint = parallel::open_checkpoint(o.checkpoint, *alone, files);
  take_settings(a, checkpoint);
  auto rules = a.rules();
  check_tensors(checkpoint, rules);
  int64_t parameters = 0;
  for (const Rule& rule : rules) parameters += rule.full.numel();

  NewDirectory to(o.to, files);
  Progress progress("exported", uint64_t(parameters) * sizeof(float));
  nn::write_tensors(to.work() + "/model.safetensors", tensors_of(rules, checkpoint, progress),
                    {{"format", "pt"}}, files);
  files.write(to.work() + "/config.json", config_text(a));
  auto copied = copy_tokenizer_files(tokenizer_files_of(checkpoint), to.work(), files);
  to.publish();
  fmt::print("exported {} parameters of {} to {}, as a {} in f32\n", parameters, checkpoint.path(),
             o.to, a.name);
  if (copied.empty())
    fmt::print("no tokenizer files in {}: copy those of the model that this one began with to {}\n",
               tokenizer_files_of(checkpoint), o.to);
  else fmt::print("tokenizer files: {}\n", join(copied, ", "));
}

}  // namespace triax::hf
