#pragma once
#include "triax/core/shared/team.h"

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// Calls f(begin, end), compiled once for all places that call it. f is taken by value, so that
/// nothing else can change it.
template <class F> __attribute__((noinline)) void do_piece(F f, int64_t begin, int64_t end) {
  f(begin, end);
}

/// Calls f(begin, end) for pieces of [0, n) on this thread's team. Pieces are multiples of `grain`
/// (but the last); one piece, and no threads, when n <= grain. The cut depends on n and grain only,
/// so results of pieces that do not meet never depend on the threads.
template <class F> void parallel_for(int64_t n, int64_t grain, F f) {
  int64_t pieces = (n + grain - 1) / grain;
  if (pieces <= 1) {
    if (n > 0) do_piece(f, 0, n);
    return;
  }
  int64_t threads = threads_here(), shares = threads < pieces ? threads : pieces;
  in_team(shares, [=](int64_t share) {
    int64_t more = shares - 1, end = (pieces * (share + 1) + more) / shares;  // here most: share 0
    for (int64_t p = (pieces * share + more) / shares; p < end; ++p)
      do_piece(f, p * grain, p + 1 == pieces ? n : (p + 1) * grain);
  });
}

/// Calls f(i) for each i of [0, n), likewise.
template <class F> void parallel_each(int64_t n, int64_t grain, F f) {
  parallel_for(n, grain, [f](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace
}  // namespace triax::host
