#pragma once
#include <string>

#include "examples/minigpt/config.h"
#include "examples/minigpt/tokenizer.h"
#include "optim/adamw.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/checkpoint/over_communicator.h"
#include "parallel/data/data_parallel.h"

namespace triax::minigpt {

/// The files of one run: the resolved config, the tokenizer and checkpoints `step-N`.
class RunDirectory {
 public:
  /// Collective. Makes the directory `c.out` and writes config.toml and tokenizer.json (rank 0).
  /// Throws Error 73, on every rank, if it cannot. All arguments must outlive it.
  RunDirectory(const TrainConfig& c, const Tokenizer& tokenizer, parallel::Communicator& host);

  const std::string& path() const { return checkpoints_.path(); }
  /// Collective. Load what --resume says into weights and optimizer; the step it was saved at, 0
  /// if training starts afresh. Error 78 if the checkpoint is of another model or data order.
  int64_t resume(parallel::DataParallel& data, optim::AdamW& adam);
  /// Collective. Save a checkpoint, then drop all but the newest --keep.
  void save(int64_t step, parallel::DataParallel& data, optim::AdamW& adam);

 private:
  const TrainConfig& config_;
  const Tokenizer& tokenizer_;
  parallel::OverCommunicator ranks_;
  parallel::CheckpointDirectory checkpoints_;
};

/// Weights and optimizer state by logical name: what a checkpoint holds.
std::vector<parallel::Piece> pieces(parallel::DataParallel& data, const optim::AdamW& adam);

}  // namespace triax::minigpt
