#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "parallel/data/bucket.h"
#include "parallel/data/data_parallel.h"

namespace triax::parallel {
// One sum: squares of the elements that count here, and non-finite ones anywhere. The norm alone
// would be no vote: an inf in a tied copy or a replica is not in it.
DataParallel::Norm DataParallel::norm() {
  Device device = buckets_.empty() ? cpu : buckets_[0]->my_grad.device();
  Tensor counted = zeros({2}, f64, device), rest = zeros({2}, f64, device);
  for (auto& b : buckets_)
    for (auto& piece : b->layout.pieces) {
      Range r = b->mine(piece);
      if (r.begin == r.end) continue;
      Tensor mine = b->my_grad.narrow(0, r.begin, r.end - r.begin);
      backend(mine).squares(mine, owns(*piece.parameter) ? counted : rest);
    }
  auto own = counted.to(cpu).to_host<double>(), other = rest.to(cpu).to_host<double>();
  Tensor both = from_host(std::vector<double>{own[0], own[1] + other[1]}, {2}, cpu);
  groups_.all->all_reduce(both).wait();
  auto sums = both.to_host<double>();
  bool finite = sums[1] == 0;
  return {finite ? std::sqrt(sums[0]) : std::numeric_limits<double>::infinity(), sums[1]};
}

std::string DataParallel::first_non_finite() {
  auto first = double(declared_.size());
  for (auto& b : buckets_)
    for (auto& piece : b->layout.pieces) {
      Range r = b->mine(piece);
      Tensor out = zeros({2}, f64, b->my_grad.device());
      backend(out).squares(b->my_grad.narrow(0, r.begin, r.end - r.begin), out);
      if (out.to(cpu).to_host<double>()[1] == 0) continue;
      auto at = std::find(declared_.begin(), declared_.end(), piece.parameter) - declared_.begin();
      first = std::min(first, double(at));
    }
  Tensor index = from_host(std::vector<double>{first}, {1}, cpu);
  groups_.all->all_reduce(index, ReduceOp::min).wait();
  auto at = size_t(index.item());
  return at < declared_.size() ? declared_[at]->name : "";
}

}  // namespace triax::parallel
