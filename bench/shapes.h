#pragma once
#include <vector>

#include "triax/core/backend.h"
#include "triax/core/random.h"

// The matrix products of a transformer block, for benchmarks.
namespace triax {

inline Tensor values(const Shape& shape, DType dtype = f32) {
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 2 * random::uniform(1, i, 0) - 1;
  return from_host(v, shape, cpu).to(dtype);
}

/// x [m, k] w^T, with w [n, k]; dy w, with w stored [k, n]; dy^T x, with dy [k, m], x [k, n].
enum class Kind { forward, dx, dw };
constexpr const char* kind_names[] = {"forward", "dx", "dw"};

struct ProductShape {
  Kind kind;
  int64_t m, n, k;
};

inline Matmul product(const ProductShape& s, DType dtype) {
  bool dw = s.kind == Kind::dw;
  Matmul p;
  p.a = dw ? values({s.k, s.m}, dtype).transpose(0, 1) : values({s.m, s.k}, dtype);
  p.b = s.kind == Kind::forward ? values({s.n, s.k}, dtype).transpose(0, 1)
                                : values({s.k, s.n}, dtype);
  p.c = empty({s.m, s.n}, dw ? accumulator(dtype) : dtype, cpu);
  return p;
}

/// The four projections of a block, each forward and with both gradients.
inline std::vector<ProductShape> block_products(int64_t tokens, int64_t width) {
  std::vector<ProductShape> all;
  for (auto [in, out] : {std::pair{width, 3 * width}, std::pair{width, width},
                         std::pair{width, 4 * width}, std::pair{4 * width, width}}) {
    all.push_back({Kind::forward, tokens, out, in});
    all.push_back({Kind::dx, tokens, in, out});
    all.push_back({Kind::dw, out, in, tokens});
  }
  return all;
}

}  // namespace triax
