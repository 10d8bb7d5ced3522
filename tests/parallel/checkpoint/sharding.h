#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "triax/parallel/checkpoint/directory.h"

namespace triax::test {

/// How a test cuts a small model: over `tp` ranks by dims, and what each of those holds, as one
/// flat bucket, over `dp` ranks (1: not cut, as without ZeRO).
struct Cut {
  int tp = 1, dp = 1;
  int ranks() const { return tp * dp; }
};

struct Logical {
  std::string name, kind;
  Shape full;
  DType dtype;
  int dim;  ///< that tp slices, -1: none; the first tp rank then holds it
};
inline const std::vector<Logical> model = {
    {"embedding.weight", "", {11, 4}, f32, 0},
    {"blocks.0.up.weight", "", {8, 6}, f32, 0},
    {"blocks.0.down.weight", "", {6, 8}, f32, 1},
    {"blocks.0.down.bias", "", {6}, f32, -1},
    {"blocks.0.down.weight", "m", {6, 8}, f64, 1},
    {"blocks.0.cube", "", {3, 5, 2}, bf16, 1},
    {"scale", "", {}, f32, -1},
    {"nothing", "", {3, 0}, f16, 0},
};

inline Tensor logical_value(const Logical& l) {
  std::vector<float> values(size_t(l.full.numel()));
  std::iota(values.begin(), values.end(), float(l.name.size() + 100 * l.kind.size()));
  return from_host(values, l.full, cpu).to(l.dtype);
}

/// The pieces that `rank` of a cut holds, with the model's values or with zeros.
inline std::vector<parallel::Piece> pieces_of(const Cut& cut, int rank, bool values) {
  using namespace parallel;
  int tp = rank % cut.tp, dp = rank / cut.tp;
  std::vector<Piece> pieces;
  int64_t bucket = 0;  // elements of this tp rank
  for (const Logical& l : model) {
    Part p{.full = l.full};
    if (l.dim >= 0) {
      int64_t size = l.full[l.dim];
      p.dim = l.dim;
      p.begin = size * tp / cut.tp;
      p.length = size * (tp + 1) / cut.tp - p.begin;
    } else if (tp != 0) {
      continue;
    }
    Tensor whole = logical_value(l);
    if (p.dim >= 0) whole = whole.narrow(p.dim, p.begin, p.length);
    bucket += whole.numel();
    pieces.push_back({l.name, l.kind, p, values ? clone(whole) : zeros_like(clone(whole))});
  }
  if (cut.dp == 1) return pieces;
  int64_t begin = bucket * dp / cut.dp, end = bucket * (dp + 1) / cut.dp, at = 0;
  std::vector<Piece> mine;
  for (Piece& p : pieces) {
    int64_t n = p.value.numel(), from = std::clamp<int64_t>(begin - at, 0, n),
            to = std::clamp<int64_t>(end - at, 0, n);
    at += n;
    if (from == to && !(n == 0 && dp == 0)) continue;
    p.part.flat_begin = from;
    p.part.flat_end = to;
    p.value = clone(p.value.view({n}).narrow(0, from, to - from));
    mine.push_back(std::move(p));
  }
  return mine;
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.data(), y.data(), x.bytes()) == 0);
}

}  // namespace triax::test
