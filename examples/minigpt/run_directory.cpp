#include "examples/minigpt/run_directory.h"

#include "core/check.h"
#include "core/files.h"

namespace triax::minigpt {
namespace {

using parallel::Part;
using parallel::Piece;

/// What must be the same for a run to go on where a checkpoint left it: another value would train
/// another model, or the same one on other data.
std::vector<std::pair<std::string, std::string>> identity(const TrainConfig& c,
                                                          const Tokenizer& tokenizer) {
  return {{"layers", std::to_string(c.model.layers)},
          {"heads", std::to_string(c.model.heads)},
          {"width", std::to_string(c.model.width)},
          {"context", std::to_string(c.model.context)},
          {"vocab", std::to_string(c.model.vocab)},
          {"seed", std::to_string(c.seed)},
          {"global_batch", std::to_string(c.global_batch)},
          {"tokenizer_hash", tokenizer.hash()}};
}

void replace_file(const std::string& path, const std::string& text) {
  std::string unfinished = path + ".tmp-" + unique_suffix();
  disk().write(unfinished, text);
  disk().rename(unfinished, path);
}

/// Rank 0 makes the directory; all learn whether that went well.
std::string make_directory(const TrainConfig& c, const Tokenizer& tokenizer,
                           parallel::Coordinator& ranks) {
  return parallel::on_first(ranks, [&] {
    disk().make_directory(c.out);
    replace_file(c.out + "/config.toml", to_toml(c));
    replace_file(c.out + "/tokenizer.json", tokenizer.json());
    return c.out;
  });
}

}  // namespace

std::vector<Piece> pieces(parallel::DataParallel& data, const optim::AdamW& adam) {
  std::vector<Piece> all;
  auto add = [&](const Tensor& flat, const parallel::BucketPiece& at, const std::string& kind) {
    auto& p = *at.parameter;
    Part part{.full = p.full};
    if (p.shard.length >= 0)
      part.dim = p.shard.dim, part.begin = p.shard.begin, part.length = p.shard.length;
    all.push_back({p.name, kind, part, flat.narrow(0, at.begin, at.length).view(p.local())});
  };
  auto slots = data.slots();
  for (size_t i = 0; i < slots.size(); ++i)
    for (auto& piece : data.layout()[i].pieces) add(slots[i].weight, piece, "");
  for (auto& state : adam.state())
    for (auto& piece : data.layout()[state.slot].pieces) add(state.value, piece, state.kind);
  return all;
}

RunDirectory::RunDirectory(const TrainConfig& c, const Tokenizer& tokenizer,
                           parallel::Communicator& host)
    : config_(c),
      tokenizer_(tokenizer),
      ranks_(host),
      checkpoints_(make_directory(c, tokenizer, ranks_), ranks_) {}

int64_t RunDirectory::resume(parallel::DataParallel& data, optim::AdamW& adam) {
  checkpoints_.remove_leftovers();
  if (config_.resume.empty()) return 0;
  auto checkpoint = checkpoints_.resume(config_.resume);
  if (!checkpoint) return 0;
  for (auto& [key, value] : identity(config_, tokenizer_))
    check_input(checkpoint->state(key) == value, Exit::config,
                "checkpoint {} was trained with {} {}; this run asks for {}. Resume with the same, "
                "or start a new run directory",
                checkpoint->path(), key, checkpoint->state(key), value);
  checkpoint->load(pieces(data, adam));
  adam.set_steps(checkpoint->step());
  return checkpoint->step();
}

void RunDirectory::save(int64_t step, parallel::DataParallel& data, optim::AdamW& adam) {
  parallel::CheckpointState state;
  for (auto& [key, value] : identity(config_, tokenizer_)) state[key] = value;
  state["config"] = to_toml(config_);
  state["tokenizer"] = tokenizer_.json();
  // Replicas are written once.
  auto mine = ranks_.rank() == 0 ? pieces(data, adam) : std::vector<Piece>();
  checkpoints_.save(step, mine, state);
  checkpoints_.prune(int(config_.keep));
}

}  // namespace triax::minigpt
