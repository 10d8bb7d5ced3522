#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "triax/core/tensor.h"

namespace triax::parallel {

/// The reduction of several ranks' values to one. Sums of f16 and bf16 are made in f32 and rounded
/// once, between hosts once more; integers wrap around. A NaN wins max and min.
enum class ReduceOp : uint8_t { sum, max, min };

/// The place of a call in the source. As a default argument it is the caller's line.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// The bytes that one rank sends to another in an all_to_all.
struct Slice {
  size_t bytes;
  size_t from, to;  ///< the offsets in the sender's `mine` and in the receiver's `all`
  /// Returns how many of its bytes are among the `count` from `begin` on.
  size_t within(size_t begin, size_t count) const {
    return begin < bytes ? std::min(count, bytes - begin) : 0;
  }
};

/// A rank's request to its peers, which is compared before any byte moves.
struct Call {
  enum Kind : uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    reduce,
    gather,
    scatter,
    all_to_all,
    barrier,
    split,
    send,
    recv
  };
  static constexpr int kinds = recv + 1;

  Kind kind;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  int peer = -1;      ///< root, or the other side of a send or recv
  int64_t numel = 0;  ///< elements of the smaller tensor: `mine`, or x; or of the largest slice
  Place place = {"", 0};
  uint32_t table = 0;  ///< the CRC-32C of the table of an all_to_all with unequal slices
  /// For such a one: sender by sender, the slices for each rank.
  std::shared_ptr<const std::vector<Slice>> slices = {};

  /// True if it is between two ranks, not a collective.
  bool is_message() const { return kind == send || kind == recv; }
  /// Returns the slice that `sender` sends to `receiver` in an all_to_all among `ranks`.
  Slice slice(int ranks, int sender, int receiver) const {
    if (slices) return (*slices)[size_t(sender * ranks + receiver)];
    size_t each = size_t(numel) * size_of(dtype);
    return {.bytes = each, .from = size_t(receiver) * each, .to = size_t(sender) * each};
  }
  /// True if two ranks of one collective make the same call.
  bool matches(const Call& o) const {
    return kind == o.kind && op == o.op && dtype == o.dtype && peer == o.peer && numel == o.numel &&
           table == o.table;
  }
};

constexpr std::string_view name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "max", "min"};
  return names[int(op)];
}
constexpr std::string_view name(Call::Kind kind) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                        "reduce",     "gather",     "scatter",        "all_to_all",
                                        "barrier",    "split",      "send",           "recv"};
  return names[kind];
}
/// `all_reduce(sum, f32[4096])`.
std::string describe(const Call& call);
/// `parallel/mesh.cpp:12`.
std::string str(Place place);
/// Returns the call, with its place.
std::string located(const Call& call);

/// A call with its tensors, contiguous and checked. `from` and `to` are undefined on ranks that
/// send or receive nothing, and the same tensor where a call works in place.
struct Transfer {
  Call call;
  Tensor from, to;
};

/// The calls that this rank made on one communicator, whatever the transport. Bytes are logical:
/// those a rank of a ring of n would send. all_reduce 2 (n-1)/n of x; all_gather, reduce_scatter
/// (n-1)/n of `all`; broadcast, reduce (n-1)/n of x; gather: `mine` if not the root; scatter: all
/// but its own slice if the root; all_to_all: all but its own slice; send: x; recv: nothing.
class Ledger {
 public:
  struct Line {
    int64_t calls = 0;
    double bytes = 0;
    Line operator-(const Line& before) const {
      return {calls - before.calls, bytes - before.bytes};
    }
    void operator+=(const Line& more) { calls += more.calls, bytes += more.bytes; }
  };
  const Line& operator[](Call::Kind kind) const { return lines_[kind]; }
  Line total() const;
  void add(Call::Kind kind, double bytes) {
    ++lines_[kind].calls;
    lines_[kind].bytes += bytes;
  }

 private:
  std::array<Line, Call::kinds> lines_;
};

}  // namespace triax::parallel
