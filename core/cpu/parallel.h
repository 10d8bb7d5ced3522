#pragma once
#include <omp.h>

#include <cstdint>

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// Returns the threads that a parallel region would have here: one within another region.
inline __attribute__((always_inline)) int threads_here() {
  return omp_in_parallel() ? 1 : omp_get_max_threads();
}

/// Calls f(begin, end), compiled once for all places that call it. f is taken by value, so that
/// nothing else can change it.
template <class F> __attribute__((noinline)) void do_piece(F f, int64_t begin, int64_t end) {
  f(begin, end);
}

/// Calls f(begin, end) for pieces of [0, n) on this thread's OpenMP pool. Pieces are multiples of
/// `grain` (but the last); one piece, and no threads, when n <= grain. The cut depends on n, grain
/// and the number of threads only, so elementwise results never depend on it.
template <class F> void parallel_for(int64_t n, int64_t grain, F f) {
  int64_t pieces = (n + grain - 1) / grain;
  if (pieces <= 1) {
    if (n > 0) do_piece(f, 0, n);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < pieces; ++p)
    do_piece(f, p * grain, p + 1 == pieces ? n : (p + 1) * grain);
}

}  // namespace
}  // namespace triax::host
