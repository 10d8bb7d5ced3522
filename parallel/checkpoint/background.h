#pragma once
#include <future>
#include <stop_token>
#include <string>
#include <vector>

#include "triax/parallel/checkpoint/directory.h"

namespace triax::parallel {

/// A checkpoint that is written while its ranks go on: each copies its pieces, and a thread of its
/// own writes the copies; then one of rank 0 gives the checkpoint its name. These threads do not
/// communicate; ranks exchange their results in the collective calls. Destroyed while ranks write,
/// it gives up and removes the files.
class BackgroundSave : Immovable {
 public:
  /// Collective. Returns when the copies are made. Until the file is written they take as much host
  /// memory as this rank's file, which is then kept for the next save, and count as `buffers`,
  /// pieces of another device as `offloaded`. `to` and `ranks` must outlive it. Throws the same
  /// Error on every rank: 71 if there is no memory for a copy, and as CheckpointDirectory::begin.
  BackgroundSave(CheckpointDirectory& to, Communicator& ranks, int64_t step,
                 const std::vector<Piece>& pieces, CheckpointState state);
  ~BackgroundSave();

  /// Collective. True if only commit() is left to call. Does not wait. Throws as
  /// CheckpointDirectory::save.
  bool done();
  /// Collective, once. Waits until the checkpoint has its name; throws as
  /// CheckpointDirectory::save.
  void commit();

 private:
  void publish();
  CheckpointDirectory& to_;
  Communicator& ranks_;
  Unfinished checkpoint_;
  CheckpointState state_;
  std::stop_source stop_;
  std::future<std::string> written_;  // invalid once all ranks have written
  std::future<void> published_;       // on rank 0, valid from then on
};

}  // namespace triax::parallel
