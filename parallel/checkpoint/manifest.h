#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "triax/core/dtype.h"
#include "triax/parallel/checkpoint/part.h"

namespace triax::parallel {

/// The state that must come back beside tensors, as text: sample position, loss scale, random key,
/// config, tokenizer hash, ... Values are UTF-8; write floating-point numbers as `{:a}`.
using CheckpointState = std::map<std::string, std::string>;

struct StoredFile {
  std::string name;  ///< a plain file name inside the checkpoint's directory
  uint64_t bytes = 0;
  uint32_t header = 0;  ///< crc32c of the safetensors length and header
};
struct StoredPart {
  size_t file = 0;      ///< index into Manifest::files
  std::string tensor;   ///< its name there
  uint32_t crc32c = 0;  ///< of its bytes
  Part part;
};
struct StoredTensor {
  DType dtype = f32;
  Shape full;
  std::vector<StoredPart> parts;
};

/// The table of contents of a checkpoint, `manifest.json`. Knows tensors by logical name and full
/// shape and nothing of meshes, so that any mesh can load what any other saved.
struct Manifest {
  int64_t step = 0;
  CheckpointState state;
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor> tensors;  ///< by `logical_name`
};

/// Returns the logical name of tensor `name` (`blocks.0.up.weight`) and its `kind` (`exp_avg`;
/// empty for the parameter itself): `blocks.0.up.weight@exp_avg`.
std::string logical_name(const std::string& name, const std::string& kind);

/// Returns a number from a checkpoint's untrusted state. Throws Error 65, which begins with
/// `where`, for all but whole numbers from 0 to 2^53.
int64_t whole_number(const std::string& text, const std::string& where);

/// Returns JSON that begins with the checksum of all that follows it, so that any damage shows.
std::string to_text(const Manifest& manifest);
/// Puts the checksum in front of JSON members `"key": value, ...}` (to_text's last step).
std::string seal(const std::string& members);

/// Reads and checks the manifest of the checkpoint at `path`: checksum, format version, grammar,
/// plain file names, shapes without overflow, parts inside of their tensors, every file's tensor
/// used once, no more bytes than its file has. Throws Error 65 naming `path`.
Manifest parse_manifest(const std::string& text, const std::string& path);

/// Says which element of which tensor is not held exactly once; empty if all are. Takes time in
/// proportion to the elements: compare the files' sizes first.
std::string incomplete(const Manifest& manifest);

inline constexpr uint64_t max_manifest_bytes = uint64_t(256) << 20;
inline constexpr const char* manifest_name = "manifest.json";

}  // namespace triax::parallel
