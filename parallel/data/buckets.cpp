#include "parallel/data/buckets.h"

namespace triax::parallel {

std::vector<BucketLayout> lay_out(const std::vector<nn::Parameter*>& parameters,
                                  const BucketSizes& sizes) {
  constexpr int64_t align = 16;  // one AVX-512 register of f32, one cache line
  std::vector<BucketLayout> buckets;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    int64_t n = (*it)->local().numel(), padded = (n + align - 1) / align * align;
    int64_t limit = buckets.size() <= 1 ? sizes.first : sizes.other;
    if (buckets.empty() || (buckets.back().length > 0 && buckets.back().length + padded > limit))
      buckets.emplace_back();
    auto& b = buckets.back();
    b.pieces.push_back({*it, b.length, n});
    b.length += padded;
  }
  return buckets;
}

}  // namespace triax::parallel
