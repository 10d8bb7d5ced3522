#include "triax/parallel/train/runs/initial_weights.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/options/groups.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel {
namespace {

/// Checks the model's settings. With fresh parameters the model may differ on purpose: a warning.
void check_same_model(const Checkpoint& checkpoint, const Settings& settings, bool any_fresh) {
  auto saved = saved_settings(checkpoint);
  for (auto& s : settings) {
    auto known = saved.find(s.name);
    bool shapes = s.group == model_group && s.on_resume == OnResume::refuse;
    if (!shapes || known == saved.end() || known->second == literal(s)) continue;
    bool named = known->second == "0" && !s.shown.empty();
    std::string text = fmt::format(
        "init: checkpoint {} is of a model with {} {}{}; this run asks for {}\n", checkpoint.path(),
        s.name, known->second, named ? fmt::format(" ({})", s.shown) : "", literal(s));
    check_input(any_fresh, Exit::config,
                "{}  Leave --{} out: the checkpoint's model is the default.{}", text, s.name,
                s.name == "context" ? " Of a model of Hugging Face, `import --context N` makes a "
                                      "checkpoint of fewer positions."
                                    : "");
    std::fputs(text.c_str(), stdout);
  }
}

/// Checks attachments: weights of other tokens would be trained on as if they were of these.
void check_same_attachments(const Checkpoint& checkpoint, const Task& task) {
  for (auto& [name, text] : task.attachments) {
    auto known = checkpoint.state().find(name);
    if (known == checkpoint.state().end()) {
      std::fputs(fmt::format("init: checkpoint {} has no {}; its weights are taken to be of this "
                             "run's\n",
                             checkpoint.path(), name)
                     .c_str(),
                 stdout);
      continue;
    }
    check_input(known->second == text || (task.alike && task.alike(known->second, text)),
                Exit::config,
                "init: checkpoint {} has another {}, which its weights were trained with\n  Give "
                "this run the same. Of a text: leave --tokenizer out, and it is the checkpoint's.",
                checkpoint.path(), name);
  }
}

using Patterns = std::vector<std::string>;

bool is_fresh(const Patterns& fresh, const std::string& name) {
  return std::ranges::any_of(fresh, [&](auto& pattern) { return matches(pattern, name); });
}

/// Checks that no weight of the checkpoint is left out in silence.
void check_claimed(const Checkpoint& checkpoint, const Replica& replica, const Patterns& fresh) {
  std::map<std::string, Shape> here;
  for (auto* p : replica.parameters()) here[p->name] = p->full;
  for (auto* b : replica.all_buffers()) here[b->name] = b->shape;
  auto names = transformed(here, [](auto& named) { return named.first; });
  for (auto& pattern : fresh) {
    auto fits = [&](auto& named) { return matches(pattern, named.first); };
    check_input(std::ranges::any_of(here, fits) || std::ranges::any_of(checkpoint.tensors(), fits),
                Exit::config, "init-new: `{}` matches no parameter{}", printable(pattern),
                unmatched(pattern, names));
  }
  for (auto& [name, tensor] : checkpoint.tensors())
    check_input(name.find('@') != name.npos || here.contains(name) || is_fresh(fresh, name),
                Exit::data,
                "init: checkpoint {}: tensor {} {} has no place in this model\n  To start without "
                "it: --init-new \"{}\", or a pattern.",
                checkpoint.path(), printable(name), tensor.full, printable(name));
  for (auto& [name, shape] : here) {
    if (is_fresh(fresh, name)) continue;
    check_input(checkpoint.tensors().contains(name), Exit::data,
                "init: checkpoint {} has no tensor {}, which this model has\n  To start with "
                "the model's own: --init-new \"{}\", or a pattern.",
                checkpoint.path(), name, name);
    const Shape& stored = checkpoint.tensors().at(name).full;
    check_input(stored == shape, Exit::data,
                "init: checkpoint {}: tensor {} is {}; expected {}\n  To start with the model's "
                "own: --init-new \"{}\", or a pattern.",
                checkpoint.path(), name, stored, shape, name);
  }
}

/// True for tensors that begin as copies of the weights.
bool begins_as_weight(const Piece& p) {
  return p.kind.empty() || p.kind == "master" || p.kind == "average";
}

}  // namespace

CheckpointState take_model_settings(const Settings& settings, const std::string& path) {
  std::string checkpoint = newest_checkpoint(path);
  CheckpointState state = read_manifest(checkpoint).state;
  Settings model;
  for (auto& s : settings)
    if (s.group == model_group) model.push_back(s);
  restore(model, checkpoint, state);
  return state;
}

Tensor stored_weight(Checkpoint& checkpoint, const std::string& name, const Part& part,
                     Weights which) {
  if (which == Weights::average && has_state(checkpoint, name))
    return checkpoint.read(name, part, "average");
  bool exact = checkpoint.tensors().contains(logical_name(name, "master"));
  return checkpoint.read(name, part, exact ? "master" : "");
}

void fill_weights(Checkpoint& checkpoint, const std::vector<Piece>& pieces, Communicator& ranks,
                  Weights which) {
  together(ranks, [&] {
    for (const Piece& p : pieces) {
      auto held = p.value.storage()->hold(Access::write);
      Tensor stored = stored_weight(checkpoint, p.name, p.part, which).to(p.value.dtype());
      copy_(p.value.detach(), stored.view(p.value.shape()));
    }
  });
}

Settings weights_setting(const std::string& group, Weights& which) {
  return SettingGroup(group).add(
      "weights", "trained|average",
      "weights as trained, or their moving average, of a run with --average",
      choice(which, {{"trained", Weights::trained}, {"average", Weights::average}}));
}

void check_weights(const Checkpoint& checkpoint, Weights which) {
  std::string average = saved_settings(checkpoint)["average"];
  check_input(which == Weights::trained || (!average.empty() && average != "0.0"), Exit::config,
              "weights=average of checkpoint {}, whose run had none\n"
              "  Train with --average 0.999, or leave --weights out.",
              checkpoint.path());
}

void start_from(const TrainOptions& o, const Task& task, Step& step, Communicator& ranks) {
  Checkpoint checkpoint = open_checkpoint(o.init, ranks);
  Patterns fresh = parse_patterns(o.init_new);
  on_first(ranks, [&] {
    check_weights(checkpoint, o.init_weights);
    check_same_attachments(checkpoint, task);
    check_same_model(checkpoint, task.settings, !fresh.empty());
  });
  for (auto* p : step.replica().parameters())  // adapters are new beside the weights of a model
    if (p->adapter && !checkpoint.tensors().contains(p->name)) fresh.push_back(p->name);
  together(ranks, [&] { check_claimed(checkpoint, step.replica(), fresh); });
  auto fill = [&](std::vector<Piece> pieces) {
    std::erase_if(pieces, [&](auto& p) { return !begins_as_weight(p) || is_fresh(fresh, p.name); });
    fill_weights(checkpoint, pieces, ranks, o.init_weights);
  };
  step.restore(fill, step.state());
}

}  // namespace triax::parallel
