#include "examples/minigpt/run_directory.h"

#include <algorithm>

#include "core/check.h"
#include "core/files.h"

namespace triax::minigpt {
namespace {

using parallel::Part;
using parallel::Piece;

/// What must be the same for a run to go on where a checkpoint left it: another value would train
/// another model, or the same one on other data.
std::vector<std::pair<std::string, std::string>> identity(const TrainConfig& c,
                                                          const Tokenizer& tokenizer,
                                                          const TextData& text) {
  return {{"layers", std::to_string(c.model.layers)},
          {"heads", std::to_string(c.model.heads)},
          {"width", std::to_string(c.model.width)},
          {"context", std::to_string(c.model.context)},
          {"vocab", std::to_string(c.model.vocab)},
          {"seed", std::to_string(c.seed)},
          {"precision", c.precision},
          {"global_batch", std::to_string(c.global_batch)},
          {"tokenizer_hash", tokenizer.hash()},
          {"text_hash", text.hash()}};
}

void replace_file(const std::string& path, const std::string& text) {
  std::string unfinished = path + ".tmp";
  disk().remove(unfinished);  // of a run that was killed
  disk().write(unfinished, text);
  disk().rename(unfinished, path);
}

}  // namespace

RunDirectory::RunDirectory(const TrainConfig& c, const Tokenizer& tokenizer, const TextData& text,
                           parallel::Communicator& host)
    : config_(c), tokenizer_(tokenizer), text_(text), ranks_(host), checkpoints_(c.out, ranks_) {}

int64_t RunDirectory::open(parallel::DataParallel& data, optim::AdamW& adam,
                           optim::LossScaler& scaler) {
  int64_t step = config_.resume.empty() ? 0 : resume(data, adam, scaler);
  parallel::on_first(ranks_, [&] {
    disk().make_directory(config_.out);
    refuse_newer_than(step);
    replace_file(config_.out + "/config.toml", to_toml(config_));
    replace_file(config_.out + "/tokenizer.json", tokenizer_.json());
    return "";
  });
  checkpoints_.remove_leftovers();
  return step;
}

/// A run that began below them would leave checkpoints of two histories side by side, and pruning
/// and --resume auto would take the wrong ones. Only last-good may: what is newer is damaged.
void RunDirectory::refuse_newer_than(int64_t step) const {
  auto steps = checkpoints_.steps();
  check_input(config_.resume == "last-good" || steps.empty() || steps.back() <= step, Exit::config,
              "run directory {} holds step-{}, and this run would go on after step {}\n"
              "  Continue with --resume auto, or choose another --out.",
              config_.out, steps.empty() ? 0 : steps.back(), step);
}

int64_t RunDirectory::resume(parallel::DataParallel& data, optim::AdamW& adam,
                             optim::LossScaler& scaler) {
  auto checkpoint = checkpoints_.resume(config_.resume);
  if (!checkpoint) return 0;
  for (auto& [key, value] : identity(config_, tokenizer_, text_))
    check_input(checkpoint->state(key) == value, Exit::config,
                "checkpoint {} was trained with {} {}; this run asks for {}. Resume with the same, "
                "or start a new run directory",
                checkpoint->path(), key, checkpoint->state(key), value);
  checkpoint->load(pieces(data, adam, Holder::any));
  data.publish();
  adam.set_steps(std::stoll(checkpoint->state("updates")));
  scaler.restore(checkpoint->state("loss_scaler"));
  return checkpoint->step();
}

void RunDirectory::save(int64_t step, parallel::DataParallel& data, optim::AdamW& adam,
                        optim::LossScaler& scaler) {
  parallel::CheckpointState state;
  for (auto& [key, value] : identity(config_, tokenizer_, text_)) state[key] = value;
  state["config"] = to_toml(config_);
  state["tokenizer"] = tokenizer_.json();
  state["updates"] = std::to_string(adam.steps());  // fewer than steps if some were skipped
  state["loss_scaler"] = scaler.state();
  checkpoints_.save(step, pieces(data, adam, Holder::owner), state);
  checkpoints_.prune(int(config_.keep));
}

}  // namespace triax::minigpt
