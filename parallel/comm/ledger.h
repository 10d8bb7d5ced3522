#pragma once
#include <array>

#include "parallel/comm/call.h"

namespace triax::parallel {

/// What this rank asked of one communicator, whatever the transport made of it. Bytes are logical:
/// those a rank of a ring of n would send. all_reduce 2 (n-1)/n of x; all_gather, reduce_scatter
/// (n-1)/n of `all`; broadcast, reduce (n-1)/n of x; gather: `mine` if not the root; scatter: all
/// but its own slice if the root; send: x; recv: nothing.
class Ledger {
 public:
  struct Line {
    int64_t calls = 0;
    double bytes = 0;
  };
  const Line& operator[](Call::Kind kind) const { return lines_[kind]; }
  Line total() const;
  void add(Call::Kind kind, double bytes) {
    ++lines_[kind].calls;
    lines_[kind].bytes += bytes;
  }
  /// One line of text for each kind that was called.
  std::string str() const;

 private:
  std::array<Line, Call::kinds> lines_;
};

}  // namespace triax::parallel
