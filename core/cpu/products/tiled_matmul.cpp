#include "triax/core/cpu/products/tile_products.h"
#include "triax/core/cpu/tiled.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// The size below which a product is mostly packing, or squares mostly empty: vectors are faster.
int64_t least(DType dtype) { return dtype == f32 ? 16 : least_of_bf16; }
bool small(const Matmul& p) {
  int64_t n = least(p.a.dtype());
  return p.c.size(-2) < n || p.c.size(-1) < n || p.a.size(-1) < n;
}
/// True if tiles compute row_sums, too. A c in columns would be made as its transpose.
bool sums_rows(const Matmul& p) {
  return p.row_sums.defined() && p.a.dtype() == bf16 && p.c.dtype() == f32 && p.c.numel() > 0 &&
         p.c.strides()[-1] == 1 && !p.gelu_of.defined();
}
/// True for one row, with columns that need no packing.
bool row(const Matmul& p) { return p.c.size(-2) == 1 && p.b.strides()[-2] == 1; }

/// Makes products of f32 in tiles, if the level has that: a template, so that others do without.
template <bool there> void multiply_f32(Backend& on, const Matmul& p) {
  if constexpr (there) {
    if (!p.rounding) return tile_products<float, float>(p);
    if (p.a.size(-1) <= CacheLimits<float>::depth) return tile_products<float, double>(p);
    // (A lambda: std::function of a pointer would be shared with other levels.)
    round_product(on, p, [](const Matmul& parts) { tile_products<float, float>(parts); });
  }
}
void multiply_bf16(const Matmul& p) {
  if (p.rounding) tile_products<BFloat16, double>(p);  // rounded once, after the only pass
  else if (p.c.dtype() == bf16) tile_products<BFloat16, BFloat16>(p);
  else tile_products<BFloat16, float>(p);
}

/// True if squares make this product. A product that is rounded may be a part of more, so its rows
/// and columns do not count.
bool takes_squares(const Matmul& p) {
  bool whole = p.a.dtype() == f32;
  if (whole ? !multiplies_f32 : p.a.dtype() != bf16) return false;
  if (p.rounding) return !whole || p.a.size(-1) >= least(f32);
  return !((takes_steps(p) && !sums_rows(p)) || small(p) || row(p));
}

}  // namespace

void TRIAX_SQUARES::Tiled::matmul(const Matmul& p) {
  if (!takes_squares(p)) Cpu::matmul(p);
  else if (p.a.dtype() == f32) multiply_f32<multiplies_f32>(*this, p);
  else multiply_bf16(p);
}

}  // namespace triax::host::TRIAX_LEVEL
