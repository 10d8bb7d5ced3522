#pragma once
#include <compare>
#include <cstdint>

#include "triax/core/dtype.h"

namespace triax::cuda {

/// The layout of a product's matrix in memory, in cuBLASLt's words: columns one after another.
struct Columns {
  int64_t ld = 1;           ///< elements from a column to the next
  int64_t step = 0;         ///< elements to the next matrix of the batch; 0: the same one
  bool transposed = false;  ///< the memory holds the matrix's transpose
  int alignment = 16;       ///< bytes that its address is a multiple of, up to 16
  auto operator<=>(const Columns&) const = default;
};

/// An operation fused into a product. `bias` [m] is added to every column. gelu, in the tanh form:
/// the sum, rounded, goes to `aux`, and d = gelu(the sum before it is rounded). dgelu: d is
/// multiplied by gelu's slope at `aux`. bgrad: the sums of b's columns go to `bias` [n].
enum class Epilogue { none, bias, gelu, bias_gelu, dgelu, bgrad };

/// d = a b, or d += a b, with a [m, k], b [k, n], d [m, n], in a batch. The choice of algorithm
/// depends on this alone. bias and aux lie at multiples of 16 bytes.
struct ColumnProduct {
  int64_t m, n, k;
  int64_t batches = 1;
  Columns a, b, d;
  DType in, out;  ///< of a and b; of d, bias, aux
  bool add = false;
  Epilogue epilogue = Epilogue::none;
  int64_t aux_ld = 0;
  bool timed = false;  ///< Tuning::timed
  auto operator<=>(const ColumnProduct&) const = default;
};

/// The addresses of its matrices; bias and aux may be null where they are not used. d += a b
/// becomes d = c + a b, with a c like d, where that is not null.
struct Addresses {
  const void *a, *b;
  void* d;
  const void* c = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
};

/// Queues a product on the calling thread's stream of GPU `index`. Returns false, having done
/// nothing, if cuBLASLt cannot multiply such matrices or has no such epilogue. Algorithms are
/// chosen when a product first comes up, alike in all threads of the process (devices.h: Tuning).
/// No size may be 0. Sums are made and kept in f32 (f64 for f64), without TF32.
bool multiply(int index, const ColumnProduct& p, const Addresses& at);

/// Returns the alignment in bytes, up to 16, of all numbers or-ed together in `addresses`.
inline int alignment_of(uintptr_t addresses) {
  addresses |= 16;
  return int(addresses & (~addresses + 1));
}

}  // namespace triax::cuda
