#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint.h"

namespace triax::parallel {

/// The checkpoints `step-N` of one run, and how they come and go without ever losing the last good
/// one. A checkpoint gets its name in one step, when all of it is on the disk; until then, and if
/// its writers die, it is a `step-N.tmp-ID` that nobody reads. There is no "latest" beside the
/// names that could disagree. Needs a file system that all ranks share. A directory belongs to one
/// running job. Collective calls throw the same Error on every rank.
class CheckpointDirectory {
 public:
  CheckpointDirectory(std::string path, Communicator& ranks, const Files& files = disk());

  const std::string& path() const { return path_; }
  /// Steps with a checkpoint, ascending, damaged ones included. Not collective.
  std::vector<int64_t> steps() const;

  /// Collective. Each rank brings the pieces that it shall write (of replicas, one rank only);
  /// together they must hold every element once. `state` is taken from rank 0. On failure (73, 74)
  /// all files of this attempt are removed and older checkpoints are as before.
  void save(int64_t step, const std::vector<Piece>& pieces, const CheckpointState& state);

  /// Collective. `auto`: the newest checkpoint, or none to start fresh; if it is damaged, Error 65
  /// that names the newest which is not. `last-good`: the newest that verifies; Error 66 if there
  /// are none, 65 if none verifies. Anything else is the path of a checkpoint.
  std::optional<Checkpoint> resume(const std::string& how);

  /// Collective. The step of the checkpoint whose state `key`, a number, is the lowest, and that
  /// number; none if no checkpoint has one. Those without a readable manifest are passed over.
  std::optional<std::pair<int64_t, double>> lowest(const std::string& key);

  /// Collective. If the newest checkpoint verifies, remove all but the newest `keep` (at least 1)
  /// and that of step `also`; if not, remove nothing.
  void prune(int keep, std::optional<int64_t> also = {});

  /// Collective. Remove what dead writers left. `save` does it too; readers do not, since a running
  /// job may be writing.
  void remove_leftovers();

 private:
  struct Search {
    std::optional<Checkpoint> good;  ///< the newest that verifies
    std::string damage;              ///< what is wrong with the newest of all; empty if nothing
  };
  Search newest_good();
  std::vector<int64_t> agreed_steps();
  std::string step_path(int64_t step) const;
  std::string begin(int64_t step) const;
  void publish(const std::string& unfinished, Manifest manifest) const;
  void delete_leftovers() const;

  std::string path_;
  Communicator& ranks_;
  const Files& files_;
};

/// The newest checkpoint of a run directory; another path as it is. Not collective.
std::string newest_checkpoint(const std::string& path, const Files& files = disk());
/// The same, opened. Collective.
Checkpoint open_checkpoint(const std::string& path, Communicator& ranks,
                           const Files& files = disk());

}  // namespace triax::parallel
