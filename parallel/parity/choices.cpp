#include "parallel/parity/choices.h"

#include <algorithm>
#include <cmath>

#include "autograd/touched.h"

namespace triax::parallel {

bool NotedChoices::follows(const Experts& mine, const Experts& theirs, const float* scores) const {
  for (size_t j = 0; j < mine.size(); ++j) {
    double a = scores[mine[j]], b = scores[theirs[j]];
    if (!(std::abs(a - b) <= near_ * std::max(std::abs(a), std::abs(b)))) return false;
  }
  return true;
}

Tensor NotedChoices::settled(const std::string& router, const std::vector<int64_t>& serial,
                             const Tensor& chosen, const Tensor& scores) const {
  auto k = size_t(chosen.size(1)), n = size_t(scores.size(1));
  auto all = chosen.to_host<int32_t>();
  auto by = scores.contiguous().to_host<float>();
  bool again = autograd::recomputing();
  std::lock_guard guard(lock_);
  for (size_t r = 0; r < serial.size(); ++r) {
    auto first = all.begin() + std::ptrdiff_t(r * k);
    Experts mine(first, first + std::ptrdiff_t(k));
    if (!noted_) {
      of_[{router, serial[r]}] = mine;
      continue;
    }
    auto found = noted_->of_.find({router, serial[r]});
    bool other = found != noted_->of_.end() && found->second != mine;
    bool takes = other && follows(mine, found->second, by.data() + r * n);
    if (!again) ++rows_.all;
    if (!takes) continue;
    // Another order alone makes the same sum.
    if (!again) rows_.followed += !std::ranges::is_permutation(mine, found->second);
    std::ranges::copy(found->second, first);
  }
  return from_host(all, chosen.shape(), chosen.device());
}

}  // namespace triax::parallel
