#include "core/cpu/amx.h"
#include "core/cpu/products/tile_products.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// The size below which a product is mostly packing, and vectors are faster.
constexpr int64_t least = 16;
bool small(const Matmul& p) {
  return p.c.size(-2) < least || p.c.size(-1) < least || p.a.size(-1) < least;
}
/// True if tiles compute row_sums, too. A c in columns would be made as its transpose.
bool sums_rows(const Matmul& p) {
  return p.row_sums.defined() && p.a.dtype() == bf16 && p.c.dtype() == f32 && p.c.numel() > 0 &&
         p.c.strides()[-1] == 1 && !p.gelu_of.defined();
}
/// True for one row, with columns that need no packing.
bool row(const Matmul& p) { return p.c.size(-2) == 1 && p.b.strides()[-2] == 1; }

/// Makes a product that is rounded, in tiles whatever its rows and columns: they may be a part of
/// more. Tiles round once, after their only pass.
void round_tiles(Backend& on, const Matmul& p) {
  if (p.a.dtype() == bf16) return tile_products<BFloat16, double>(p);
  if (p.a.size(-1) <= CacheLimits<float>::depth) return tile_products<float, double>(p);
  // (A lambda: std::function of a pointer would be shared with other levels.)
  round_product(on, p, [](const Matmul& parts) { tile_products<float, float>(parts); });
}

}  // namespace

void Amx::matmul(const Matmul& p) {
  bool whole = p.a.dtype() == f32, tiles = whole || p.a.dtype() == bf16;
  if (tiles && p.rounding && (!whole || p.a.size(-1) >= least)) return round_tiles(*this, p);
  if (!tiles || (takes_steps(p) && !sums_rows(p)) || (whole && small(p)) || row(p) || p.rounding)
    return Cpu::matmul(p);
  if (whole) tile_products<float, float>(p);
  else if (p.c.dtype() == bf16) tile_products<BFloat16, BFloat16>(p);
  else tile_products<BFloat16, float>(p);
}

}  // namespace triax::host::TRIAX_LEVEL
