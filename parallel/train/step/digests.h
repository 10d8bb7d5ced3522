#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace triax::parallel {

/// What is kept of a named tensor to recognise its bits: how the states of several ranks, files and
/// days are compared.
struct Digest {
  std::string name;
  std::string type;     ///< dtype and shape: `f32 [2, 3]`
  uint32_t crc32c = 0;  ///< of all bytes, row-major
  double norm = 0;      ///< Euclidean; for the reader, not compared
};
using Digests = std::vector<Digest>;

/// Returns the digest of a tensor on any device, without its norm.
Digest bits_of(std::string name, const Tensor& x);
/// Returns the whole digest of a tensor.
Digest digest_of(std::string name, const Tensor& x);

/// Returns lines for a terminal.
std::string describe(const Digests& rows);
/// Returns lines for from_lines().
std::string to_lines(const Digests& rows);
/// Reads lines, whose first is number `first` of `where`. Throws Error 65 for a text that is not of
/// to_lines(), naming the line.
Digests from_lines(const std::string& text, const std::string& where, int64_t first = 1);

/// The digests of one rank and step, in the order of computation.
struct DigestTable {
  std::string of;  ///< one line: which step and rank
  Digests rows;
};
/// Replaces the file. Throws Error 73.
void save_table(const std::string& path, const DigestTable& table);
/// Throws Error 66, or 65 for a file that save_table has not written, naming the line.
DigestTable load_table(const std::string& path);

/// What differs in names, types or bits.
struct DigestDifference {
  size_t count = 0;        ///< of names
  std::string first = {};  ///< what differs of the first, in the order of `now`
};
DigestDifference compare(std::span<const Digest> before, std::span<const Digest> now);

}  // namespace triax::parallel
