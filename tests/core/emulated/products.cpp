#include "tests/core/emulated/products.h"

#include "triax/core/cpu/products/tile_products.h"

namespace triax::host::TRIAX_LEVEL {

void multiply_f32(const Matmul& p) {
  if (p.rounding) tile_products<float, double>(p);
  else tile_products<float, float>(p);
}
void multiply_bf16(const Matmul& p) {
  if (p.rounding) tile_products<BFloat16, double>(p);
  else tile_products<BFloat16, BFloat16>(p);
}

}  // namespace triax::host::TRIAX_LEVEL
