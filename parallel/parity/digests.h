#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace triax::parallel {

/// What is kept of a tensor to recognise its bits.
struct Digest {
  std::string name;
  std::string type;     ///< dtype and shape: `f32 [2, 3]`
  double norm = 0;      ///< Euclidean
  uint32_t crc32c = 0;  ///< of all bytes, row-major
};
/// Of a contiguous tensor on the CPU.
Digest digest_of(const std::string& name, const Tensor& x);
/// Of one number, as an f64 tensor without dims.
Digest digest_of(const std::string& name, double number);

/// The digests of one rank and step, in the order of computation.
struct DigestTable {
  std::string of;  ///< one line: which step and rank
  std::vector<Digest> rows;
};

/// Lines for a terminal.
std::string describe(const DigestTable& table);
/// Replaces the file. Throws Error 73.
void save_table(const std::string& path, const DigestTable& table);
/// Throws Error 66, or 65 for a file that save_table has not written, naming the line.
DigestTable load_table(const std::string& path);

/// What differs in names, types or bits; norms are for the reader.
struct TableDifference {
  size_t count = 0;        ///< of names
  std::string first = {};  ///< what differs of the first, in the order of `now`
};
TableDifference compare(const DigestTable& before, const DigestTable& now);

}  // namespace triax::parallel
