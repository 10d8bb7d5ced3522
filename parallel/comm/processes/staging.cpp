#include "parallel/comm/processes/staging.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/movement.h"

namespace triax::parallel {
namespace {

/// True for kinds whose input is one slice for each rank.
bool brings_slices(Call::Kind k) {
  return k == Call::reduce_scatter || k == Call::scatter || k == Call::all_to_all;
}

}  // namespace

Staging::Staging(const Call& call, int rank, int ranks, size_t buffer_bytes)
    : call_(call),
      rank_(rank),
      ranks_(ranks),
      size_(size_of(call.dtype)),
      mine_bytes_(size_t(call.numel) * size_),
      round_bytes_(buffer_bytes / (brings_slices(call.kind) ? size_t(ranks) : 1) / 64 * 64),
      rounds_(int64_t((mine_bytes_ + round_bytes_ - 1) / round_bytes_)),
      reduces_first_(call.kind == Call::all_reduce && ranks > 2 && mine_bytes_ > 4096) {}

Staging::Part Staging::part(int64_t round) const {
  size_t begin = size_t(round) * round_bytes_;
  return {begin, std::min(round_bytes_, mine_bytes_ - begin)};
}

Staging::Part Staging::slice(Part p, int rank) const {
  size_t count = p.bytes / size_, n = size_t(ranks_), r = size_t(rank);
  size_t begin = count * r / n, end = count * (r + 1) / n;
  return {begin * size_, (end - begin) * size_};
}

void Staging::put(int64_t round, const std::byte* from, std::byte* buffer) const {
  Part p = part(round);
  if (call_.kind == Call::all_to_all) {
    for (int to = 0; to < ranks_; ++to) {
      Slice s = call_.slice(ranks_, rank_, to);
      if (size_t bytes = s.within(p.begin, p.bytes))
        std::memcpy(buffer + size_t(to) * p.bytes, from + s.from + p.begin, bytes);
    }
    return;
  }
  int slices = brings_slices(call_.kind) ? ranks_ : 1;
  for (int s = 0; s < slices; ++s)
    std::memcpy(buffer + size_t(s) * p.bytes, from + size_t(s) * mine_bytes_ + p.begin, p.bytes);
}

void Staging::reduce_slice(int64_t round, const std::vector<std::byte*>& buffers) const {
  Part s = slice(part(round), rank_);
  std::vector<const std::byte*> from;
  for (auto* b : buffers) from.push_back(b + s.begin);
  std::byte* to = buffers[size_t(rank_)] + s.begin;
  reduce(call_.op, call_.dtype, from, {&to, 1}, int64_t(s.bytes / size_));
}

void Staging::take(int64_t round, const std::vector<std::byte*>& buffers, std::byte* to) const {
  Part p = part(round);
  if (call_.kind == Call::all_to_all) {
    for (int from = 0; from < ranks_; ++from) {
      Slice s = call_.slice(ranks_, from, rank_);
      if (size_t bytes = s.within(p.begin, p.bytes))
        std::memcpy(to + s.to + p.begin, buffers[size_t(from)] + size_t(rank_) * p.bytes, bytes);
    }
    return;
  }
  bool joins =
      call_.kind == Call::all_gather || call_.kind == Call::split || call_.kind == Call::gather;
  if (joins || reduces_first_) {  // of each rank what it has, or has summed, for all
    for (int r = 0; r < ranks_; ++r) {
      Part s = joins ? Part{0, p.bytes} : slice(p, r);
      size_t first = joins ? size_t(r) * mine_bytes_ : 0;
      std::memcpy(to + first + p.begin + s.begin, buffers[size_t(r)] + s.begin, s.bytes);
    }
    return;
  }
  // The buffers are the tensors of a smaller call, of which this rank takes its own result alone.
  Call small = call_;
  small.numel = int64_t(p.bytes / size_);
  RankBuffers all{{buffers.begin(), buffers.end()}, std::vector<std::byte*>(buffers.size())};
  all.to[size_t(rank_)] = to + p.begin;
  move(small, all, 0, elements(small, ranks_));
}

}  // namespace triax::parallel
