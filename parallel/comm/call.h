#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace triax::parallel {

/// How values of several ranks become one. Sums of f16 and bf16 are made in f32 and rounded once;
/// integers wrap around. A NaN wins max and min.
enum class ReduceOp : uint8_t { sum, max, min };

/// Where a call stands in the source. As a default argument it is the caller's line.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// What a rank asks of its peers; what is compared before any byte moves.
struct Call {
  enum Kind : uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    reduce,
    gather,
    scatter,
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
  int64_t numel = 0;  ///< elements of the smaller tensor: `mine`, or x
  Place place = {"", 0};

  /// Between two ranks, not a collective.
  bool is_message() const { return kind == send || kind == recv; }
  /// Whether two ranks of one collective call the same.
  bool matches(const Call& o) const {
    return kind == o.kind && op == o.op && dtype == o.dtype && peer == o.peer && numel == o.numel;
  }
};

constexpr std::string_view name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "max", "min"};
  return names[int(op)];
}
constexpr std::string_view name(Call::Kind kind) {
  constexpr std::string_view names[] = {
      "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
      "scatter",    "barrier",    "split",          "send",      "recv"};
  return names[kind];
}
/// `all_reduce(sum, f32[4096])`.
std::string describe(const Call& call);
/// `parallel/mesh.cpp:12`.
std::string str(Place place);
/// The call, with its place.
std::string located(const Call& call);

/// A call with its tensors, contiguous and checked. `from` and `to` are undefined on ranks that
/// bring or take nothing, and the same tensor where a call works in place.
struct Transfer {
  Call call;
  Tensor from, to;
};

/// What this rank asked of one communicator, whatever the transport made of it. Bytes are logical:
/// those a rank of a ring of n would send. all_reduce 2 (n-1)/n of x; all_gather, reduce_scatter
/// (n-1)/n of `all`; broadcast, reduce (n-1)/n of x; gather: `mine` if not the root; scatter: all
/// but its own slice if the root; send: x; recv: nothing.
class Ledger {
 public:
  struct Line {
    int64_t calls = 0;
    double bytes = 0;
    Line operator-(const Line& before) const {
      return {calls - before.calls, bytes - before.bytes};
    }
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
