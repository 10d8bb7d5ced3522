#pragma once
#include <string>
#include <vector>

#include "triax/core/io/files.h"
#include "triax/core/io/safetensors.h"
#include "triax/core/tensor.h"

namespace triax::nn {

struct NamedTensor {
  std::string name;
  Tensor value;
};

/// Saves tensors of any layout and device as a safetensors file: biggest elements first, then by
/// name, so equal input gives equal bytes. An existing file is replaced in one step, and only once
/// the new one is on the disk. Throws Error 73 or 74, and leaves nothing behind.
void save_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                  const Metadata& metadata = {}, const Files& files = disk());

/// Returns all tensors of a safetensors file, on the CPU, in the order of their bytes. Throws Error
/// 65 for a damaged file, 66 if there is none, 74 if it cannot be read.
std::vector<NamedTensor> load_tensors(const std::string& path, const Files& files = disk());

/// The checksums of a written file, to recognise damage later (crc32c of core/io/checksum.h).
struct Checksums {
  uint64_t file_bytes = 0;
  uint32_t header = 0;            ///< of the length and the JSON
  std::vector<uint32_t> tensors;  ///< in the order of the tensors given
};
/// Writes a safetensors file that does not exist yet, and syncs it. `save_tensors` and checkpoints
/// put the file in its place. Tensors are held, and go through host memory, one at a time.
Checksums write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                        const Metadata& metadata, const Files& files);

/// A safetensors file opened for reading. The constructor checks the whole header against the
/// file's size; reading later allocates what is asked for, never more than the file holds.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path, const Files& files = disk(),
                      Links links = Links::follow);

  const std::string& path() const { return file_.path(); }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }
  /// Returns the entry of a tensor, null if there is none.
  const TensorEntry* find(const std::string& name) const;

  /// Returns a tensor by name; Error 65 if there is none.
  Tensor read(const std::string& name) const;
  /// Reads elements [begin, begin + count) in row-major order into `to`.
  void read_elements(const TensorEntry& entry, int64_t begin, int64_t count, void* to) const;

  uint32_t header_checksum() const { return header_checksum_; }
  uint32_t checksum(const TensorEntry& entry) const;

 private:
  const TensorEntry& at(const std::string& name) const;

  File file_;
  uint64_t file_bytes_ = 0, data_begin_ = 0;
  uint32_t header_checksum_ = 0;
  TensorHeader header_;
  std::map<std::string, size_t> index_;
};

}  // namespace triax::nn
