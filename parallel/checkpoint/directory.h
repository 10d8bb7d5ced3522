#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "triax/parallel/checkpoint/checkpoint.h"

namespace triax::parallel {

/// An unfinished checkpoint: its files are in a directory that nobody reads until
/// CheckpointDirectory::publish gives it its name.
struct Unfinished {
  int64_t step = 0;
  std::string path = {};  ///< of the directory
};

/// The checkpoints `step-N` of one run, which come and go without ever losing the last good one. A
/// checkpoint gets its name in one step, when all of it is on the disk; until then, and if its
/// writers die, it is a `step-N.tmp-ID` that nobody reads. There is no "latest" beside the names
/// that could disagree. Needs a file system that all ranks share. A directory belongs to one
/// running job. Collective calls throw the same Error on every rank.
class CheckpointDirectory {
 public:
  CheckpointDirectory(std::string path, Communicator& ranks, const Files& files = disk());

  const std::string& path() const { return path_; }
  /// Returns the steps with a checkpoint, ascending, damaged ones included. Not collective.
  std::vector<int64_t> steps() const;

  /// Collective. Saves the pieces that each rank is to write (of replicas, one rank only); together
  /// they must hold every element once. `state` is taken from rank 0. On failure (73, 74) all files
  /// of this attempt are removed and older checkpoints are as before.
  void save(int64_t step, const std::vector<Piece>& pieces, const CheckpointState& state);

  /// The steps of save(), for ranks that write on threads of their own (BackgroundSave). First,
  /// collective: makes the directory, after removing what dead writers left.
  Unfinished begin(int64_t step);
  /// Second, without communication, so on any thread: writes this rank's file, waits until it is on
  /// the disk, and reads it again. Returns its entry for the manifest. Throws Error 73 or 74, also
  /// once `stop` is requested.
  std::string write(const Unfinished& to, const std::vector<Piece>& pieces,
                    const std::stop_token& stop = {}) const;
  /// Third, collective: `written` returns the result of write(), or throws its error. Returns all
  /// results, on rank 0. If a rank throws, removes the files and throws, as save() does.
  std::vector<std::string> collect(const Unfinished& checkpoint,
                                   const std::function<std::string()>& written);
  /// Fourth, on rank 0, without communication: writes the manifest and gives the checkpoint its
  /// name. Throws Error 73 or 74.
  void publish(const Unfinished& checkpoint, const std::vector<std::string>& reports,
               const CheckpointState& state) const;
  /// Last, collective: `published` calls publish() on rank 0, or throws its error; then as
  /// collect().
  void conclude(const Unfinished& checkpoint, const std::function<void()>& published);
  /// Removes the files of a checkpoint that will not be published, if it can. Not collective.
  void abandon(const Unfinished& checkpoint) const;

  /// Collective. `auto`: the newest checkpoint, or none to start fresh; if it is damaged, Error 65
  /// names the newest that is not. `last-good`: the newest that verifies; Error 66 if there are
  /// none, 65 if none verifies. Anything else is the path of a checkpoint, or of another run
  /// directory, whose newest is taken as with `auto`.
  std::optional<Checkpoint> resume(const std::string& how);

  /// Collective. Returns the step of the checkpoint with the lowest number under `key` in its
  /// state, and that number; none if no checkpoint has one. Unreadable manifests are passed over.
  std::optional<std::pair<int64_t, double>> lowest(const std::string& key);

  /// Collective. If the newest checkpoint verifies, removes all but the newest `keep` (at least 1)
  /// and that of step `also`; if not, removes nothing. The last save of this object was verified
  /// when it was written, and is not read once more.
  void prune(int keep, std::optional<int64_t> also = {});

  /// Collective. Removes what dead writers left. `save` does it too; readers do not, since a
  /// running job may be writing.
  void remove_leftovers();

 private:
  struct Search {
    std::optional<Checkpoint> good;  ///< the newest that verifies
    std::string damage;              ///< of the newest of all; empty if there is none
  };
  Search newest_good();
  std::vector<int64_t> agreed_steps();
  std::string step_path(int64_t step) const;
  std::string make_directory(int64_t step) const;
  void guarded(const Unfinished& checkpoint, const std::function<void()>& work);
  void name(const std::string& unfinished, const Manifest& manifest) const;
  std::vector<std::string> leftovers() const;
  void finish_exchanges() const;

  std::string path_;
  Communicator& ranks_;
  const Files& files_;
  std::optional<int64_t> verified_;  // the step that was saved last
};

/// Returns the newest checkpoint of a run directory, or another path as it is. Not collective.
std::string newest_checkpoint(const std::string& path, const Files& files = disk());
/// Opens newest_checkpoint(path). Collective.
Checkpoint open_checkpoint(const std::string& path, Communicator& ranks,
                           const Files& files = disk());

}  // namespace triax::parallel
