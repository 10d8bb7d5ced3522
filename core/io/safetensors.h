#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "triax/core/dtype.h"
#include "triax/core/shape.h"

namespace triax::nn {

// The header of a safetensors file (github.com/huggingface/safetensors, "Format"): the file is
// 8 bytes of little-endian header length, that many bytes of JSON
// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
// "__metadata__": {"key": "text"}}, and the tensors' bytes, row-major, without a gap.
// nn/state.h reads and writes the files.

/// One tensor of a file; offsets count from the first byte after the header.
struct TensorEntry {
  std::string name;
  DType dtype = f32;
  Shape shape;
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
};

using Metadata = std::map<std::string, std::string>;

struct TensorHeader {
  std::vector<TensorEntry> entries;  ///< in the order of their bytes
  Metadata metadata;
};

/// The longest header that is read, in bytes: the format's own limit.
inline constexpr uint64_t max_header_bytes = 100'000'000;

/// Reads the JSON of a header and checks all of it: grammar, duplicates, dtypes, sizes and their
/// products, byte counts, offsets that tile exactly the `data_bytes` bytes after the header.
/// Callers may trust the result. Throws Error 65 naming `path`, the tensor, and what is wrong.
TensorHeader parse_header(std::string_view json, uint64_t data_bytes, const std::string& path);

/// Returns the JSON of a header, keys in the order given, padded with spaces so that the bytes
/// after the length (8 bytes) and the JSON start at a multiple of 8.
std::string format_header(const TensorHeader& header);

}  // namespace triax::nn
