#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "triax/core/tensor.h"

namespace triax::parallel {

/// The checksum of a named tensor, which recognises its bits: the states of several ranks, files
/// and days are compared by it.
struct Digest {
  std::string name;
  std::string type;     ///< dtype and shape: `f32 [2, 3]`
  uint32_t crc32c = 0;  ///< checksum of all bytes, row-major
  double norm = 0;      ///< Euclidean; for the reader, not compared
};
using Digests = std::vector<Digest>;

/// Returns the digest of a tensor on any device, without its norm.
Digest bits_of(std::string name, const Tensor& x);
/// Returns the whole digest of a tensor.
Digest digest_of(std::string name, const Tensor& x);

/// Returns a table for a terminal.
std::string describe(const Digests& rows);
/// Returns lines for from_lines().
std::string to_lines(const Digests& rows);
/// Reads lines of to_lines(), whose first is number `first` of `where`. Throws Error 65, naming the
/// line, for another text.
Digests from_lines(const std::string& text, const std::string& where, int64_t first = 1);

/// The digests of one rank and step, in the order of computation.
struct DigestTable {
  std::string of;  ///< its step and rank, in one line
  Digests rows;
};
/// Writes the file, or replaces it. Throws Error 73.
void save_table(const std::string& path, const DigestTable& table);
/// Reads a file of save_table. Throws Error 66, or 65 for another file, naming the line.
DigestTable load_table(const std::string& path);

/// The difference of two lists of digests in names, types or bits.
struct DigestDifference {
  size_t count = 0;        ///< the number of names that differ
  std::string first = {};  ///< the first difference, in the order of `now`
};
DigestDifference compare(std::span<const Digest> before, std::span<const Digest> now);

}  // namespace triax::parallel
