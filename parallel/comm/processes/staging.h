#pragma once
#include <cstddef>
#include <vector>

#include "parallel/comm/call.h"

namespace triax::parallel {

/// The steps of a collective through buffers of fixed size, one per rank, round by round: every
/// rank puts a part of its input into its buffer; when all have, every rank takes its result out of
/// all buffers. Pure arithmetic on memory; the caller does the waiting.
class Staging {
 public:
  Staging(const Call& call, int rank, int ranks, size_t buffer_bytes);

  int64_t rounds() const { return rounds_; }
  void put(int64_t round, const std::byte* from, std::byte* buffer) const;
  /// True for large sums among more than two ranks: each rank first sums one slice of the round,
  /// which is less work than every rank summing everything. reduce_slice() is then called between
  /// put and take, each with a wait for the others.
  bool reduces_first() const { return reduces_first_; }
  void reduce_slice(int64_t round, const std::vector<std::byte*>& buffers) const;
  /// Takes this rank's result of a round; does nothing on ranks that get none.
  void take(int64_t round, const std::vector<std::byte*>& buffers, std::byte* to) const;

 private:
  struct Part {
    size_t begin, bytes;  // within a tensor of `mine`'s size
  };
  Part part(int64_t round) const;
  Part slice(Part p, int rank) const;
  Call call_;
  int rank_, ranks_;
  size_t size_, mine_bytes_, round_bytes_;
  int64_t rounds_;
  bool reduces_first_;
};

}  // namespace triax::parallel
