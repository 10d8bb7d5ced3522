#include "triax/core/random.h"

#include <cmath>
#include <numbers>

namespace triax::random {

double normal(uint64_t key, uint64_t index) {
  Words r = philox(key, index, 0);
  double u = (r.x + 0.5) * 0x1p-32, v = (r.y + 0.5) * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

uint64_t key(uint64_t seed, std::string_view name) {
  uint64_t h = 14695981039346656037ull ^ (seed * 0x9E3779B97F4A7C15ull);
  for (unsigned char c : name) h = (h ^ c) * 1099511628211ull;
  return h;
}

}  // namespace triax::random
