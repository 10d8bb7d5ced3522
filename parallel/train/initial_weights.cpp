#include "parallel/train/initial_weights.h"

#include <set>

#include "core/check.h"
#include "core/files.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/together.h"
#include "parallel/train/run_directory.h"

namespace triax::parallel {
namespace {

/// A literal as a command line has it: without the quotes of a string.
std::string plain(const std::string& literal) {
  bool quoted = literal.size() >= 2 && literal.front() == '"' && literal.back() == '"';
  return quoted ? literal.substr(1, literal.size() - 2) : literal;
}

void check_same_model(const Checkpoint& checkpoint, const Settings& settings) {
  auto saved = saved_settings(checkpoint);
  for (auto& s : settings) {
    auto known = saved.find(s.name);
    bool shapes = s.group == model_group && s.on_resume == OnResume::refuse;
    if (!shapes || known == saved.end() || known->second == literal(s)) continue;
    fail(
        Exit::config,
        "init: checkpoint {} is of a model with {} {}; this run asks for {}\n  Leave --{} out: the "
        "checkpoint's model is the default.",
        checkpoint.path(), s.name, known->second, literal(s), s.name);
  }
}

/// Weights of other tokens would be trained on as if they were of these.
void check_same_attachments(const Checkpoint& checkpoint, const Task& task) {
  for (auto& [name, text] : task.attachments) {
    auto known = checkpoint.state().find(name);
    if (known == checkpoint.state().end()) {
      fmt::print("init: checkpoint {} has no {}; its weights are taken to be of this run's\n",
                 checkpoint.path(), name);
      continue;
    }
    check_input(known->second == text, Exit::config,
                "init: checkpoint {} has another {}, which its weights were trained with\n  Give "
                "this run the same. Of a text: --tokenizer gpt2:DIR, the directory with its files.",
                checkpoint.path(), name);
  }
}

/// Nothing of a model's weights is left out in silence.
void check_claimed(const Checkpoint& checkpoint, const Replica& replica) {
  std::set<std::string> here;
  for (auto* p : replica.parameters()) here.insert(p->name);
  for (auto* b : replica.all_buffers()) here.insert(b->name);
  for (auto& [name, tensor] : checkpoint.tensors())
    check_input(name.find('@') != name.npos || here.contains(name), Exit::data,
                "init: checkpoint {}: tensor {} {} has no place in this model", checkpoint.path(),
                printable(name), tensor.full);
}

/// Kinds of tensors that begin as copies of the weights.
bool is_weight(const Piece& p) {
  return p.kind.empty() || p.kind == "master" || p.kind == "average";
}

}  // namespace

void take_model_settings(const Settings& settings, const std::string& path) {
  std::string checkpoint = newest_checkpoint(path);
  auto saved = saved_settings(read_manifest(checkpoint).state);
  for (auto& s : settings)
    if (auto known = saved.find(s.name); s.group == model_group && known != saved.end())
      assign(s, plain(known->second),
             {Exit::data, fmt::format("checkpoint {}: {}", checkpoint, s.name)});
}

Tensor stored_weight(Checkpoint& checkpoint, const std::string& name, const Part& part) {
  bool exact = checkpoint.tensors().contains(logical_name(name, "master"));
  return checkpoint.read(name, part, exact ? "master" : "");
}

void start_from(const std::string& path, const Task& task, Step& step, Communicator& ranks) {
  Checkpoint checkpoint = open_checkpoint(path, ranks);
  on_first(ranks, [&] { check_same_attachments(checkpoint, task); });
  together(ranks, [&] {
    check_same_model(checkpoint, task.settings);
    check_claimed(checkpoint, step.replica());
  });
  auto fill = [&](const std::vector<Piece>& pieces) {
    together(ranks, [&] {
      for (const Piece& p : pieces) {
        if (!is_weight(p)) continue;
        auto held = p.value.storage()->hold(Access::write);
        Tensor stored = stored_weight(checkpoint, p.name, p.part).to(p.value.dtype());
        copy_(p.value.detach(), stored.view(p.value.shape()));
      }
    });
  };
  step.restore(fill, step.state());
}

}  // namespace triax::parallel
