#pragma once
#include <string>

#include "examples/minigpt/config.h"
#include "examples/minigpt/pieces.h"
#include "examples/minigpt/text_data.h"
#include "optim/loss_scaler.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/together.h"

namespace triax::minigpt {

/// The files of one run: the resolved config, the tokenizer and checkpoints `step-N`.
class RunDirectory {
 public:
  /// Touches nothing yet. All arguments must outlive it.
  RunDirectory(const TrainConfig& c, const Tokenizer& tokenizer, const TextData& text,
               parallel::Communicator& host);

  const std::string& path() const { return checkpoints_.path(); }
  /// Collective. Load what --resume says into weights and optimizer, then make the directory
  /// `c.out` and write config.toml and tokenizer.json; the step it was saved at, 0 if training
  /// starts afresh. Throws the same Error on every rank: 78 if the checkpoint is of another model
  /// or data order or the directory holds a later one, 73 if it cannot write. A run that is refused
  /// changes nothing.
  int64_t open(parallel::DataParallel& data, optim::AdamW& adam, optim::LossScaler& scaler);
  /// Collective. Save a checkpoint, then drop all but the newest --keep.
  void save(int64_t step, parallel::DataParallel& data, optim::AdamW& adam,
            optim::LossScaler& scaler);

 private:
  void refuse_newer_than(int64_t step) const;
  int64_t resume(parallel::DataParallel& data, optim::AdamW& adam, optim::LossScaler& scaler);

  const TrainConfig& config_;
  const Tokenizer& tokenizer_;
  const TextData& text_;
  parallel::Communicator& ranks_;
  parallel::CheckpointDirectory checkpoints_;
};

}  // namespace triax::minigpt
