#pragma once
#include <memory>
#include <string>
#include <vector>

#include "triax/core/io/files.h"
#include "triax/core/tensor.h"
#include "triax/nn/state.h"
#include "triax/parallel/checkpoint/manifest.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {

/// A tensor that goes into a checkpoint or comes out of one: the same list serves both.
struct Piece {
  std::string name;  ///< logical, equal on every mesh: `blocks.0.up.weight`
  std::string kind;  ///< empty for the parameter, else `exp_avg`, `master`, ...
  Part part;         ///< the elements that `value` holds
  Tensor value;      ///< of shape `held_shape(part)` or flat; any device, held one at a time
};

/// Throws Error 70 unless the piece's part is possible and its tensor fits it.
void check_piece(const Piece& piece);

/// Returns the manifest of the checkpoint at `path`; nothing else is read, nor its checksums
/// compared. Throws Error as Checkpoint::open does. Not collective.
Manifest read_manifest(const std::string& path, const Files& files = disk());

/// The treatment of tensors in a checkpoint that no rank asks for.
enum class Unclaimed { refuse, ignore };

/// A checkpoint on disk whose every byte was checked when it was opened. One thread at a time.
class Checkpoint {
 public:
  /// Collective. Rank 0 reads the manifest and compares the files' sizes, then the ranks share the
  /// files and compare all checksums. Every rank throws the same Error: 65 `checkpoint PATH is
  /// damaged: FILE, tensor NAME, checksum differs`, 66 if there is none, 74 if it cannot be read.
  static Checkpoint open(const std::string& path, Communicator& ranks, const Files& files = disk());

  /// Not collective. Verifies the files in `manifest`, which may be some of a checkpoint's, in the
  /// directory `path`. Throws Error 65 as open() does.
  static void verify(const std::string& path, const Manifest& manifest, const Files& files);

  /// Collective. Throws Error 65 for a tensor of the checkpoint that is none of the ranks' pieces.
  void check_claimed(const std::vector<Piece>& pieces, Communicator& ranks) const;

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t step() const { return manifest_.step; }
  const CheckpointState& state() const { return manifest_.state; }
  /// Returns the stored tensors, by `logical_name`.
  const std::map<std::string, StoredTensor>& tensors() const { return manifest_.tensors; }
  /// Returns a value of the state; Error 65 if it is not there.
  const std::string& state(const std::string& key) const;

  /// Collective. Fills the values of all pieces. First it compares everything, on all ranks: every
  /// piece is stored with that full shape and dtype, and (unless they are ignored) every stored
  /// tensor is wanted by some rank. Error 65 then leaves every value as it was.
  void load(const std::vector<Piece>& pieces, Unclaimed unclaimed = Unclaimed::refuse);

  /// Returns the elements of `part`, on the CPU, of shape `held_shape(part)`, put together from the
  /// stored parts. Error 65 if the tensor is not stored with that full shape.
  Tensor read(const std::string& name, const Part& part, const std::string& kind = {});

 private:
  Checkpoint(std::string path, const Files& files, Manifest manifest);
  void verify_sizes() const;
  void verify_file(size_t index);
  void check_compatible(const Piece& piece) const;
  const StoredTensor& at(const std::string& name, const std::string& kind, const Part&) const;
  const nn::TensorFile& file(size_t index);

  std::string path_;
  const Files* files_;
  Communicator* ranks_ = nullptr;
  Manifest manifest_;
  std::vector<std::unique_ptr<nn::TensorFile>> open_files_;
};

}  // namespace triax::parallel
