#pragma once
#include <future>
#include <stop_token>
#include <string>
#include <vector>

#include "parallel/checkpoint/directory.h"

namespace triax::parallel {

/// A checkpoint that is written while its ranks go on: each copies its pieces, and a thread of its
/// own writes the copies. That thread does not communicate. What became of it, and that all ranks
/// are done, ranks tell each other in the collective calls. Destroyed without commit(), it gives up
/// writing and removes the files.
class BackgroundSave {
 public:
  /// Collective. Returns when the copies are made; they are in the host's memory until the file is
  /// written, as large as this rank's file, and count as `buffers`, of pieces of another device as
  /// `offloaded`. `to` and `ranks` must outlive it. Throws the same Error on every rank: 71 if
  /// there is no memory for a copy, and as CheckpointDirectory::begin.
  BackgroundSave(CheckpointDirectory& to, Communicator& ranks, int64_t step,
                 const std::vector<Piece>& pieces, CheckpointState state);
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Collective. Is every rank done with its file, or has failed? Does not wait for them.
  bool done();
  /// Collective, once. Waits for the files and gives the checkpoint its name; throws as
  /// CheckpointDirectory::save.
  void commit();

 private:
  CheckpointDirectory& to_;
  Communicator& ranks_;
  Unfinished checkpoint_;
  CheckpointState state_;
  std::stop_source stop_;
  std::future<std::string> written_;
};

}  // namespace triax::parallel
