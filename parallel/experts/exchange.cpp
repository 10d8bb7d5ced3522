#include "triax/parallel/experts/exchange.h"

#include <numeric>

#include "triax/autograd/record.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {

Exchange::Exchange(Communicator* ranks, const std::vector<int64_t>& counts, int64_t parts)
    : ranks_(ranks) {
  auto n = size_t(ranks ? ranks->size() : 1), me = size_t(ranks ? ranks->rank() : 0);
  size_t block = counts.size() / n, experts = block / size_t(parts);  // block: of one receiver
  auto told = ranks ? numbers_of_all(*ranks, counts) : counts;
  there_.resize(n * n), back_.resize(n * n);
  for (size_t s = 0; s < n; ++s)
    for (size_t r = 0; r < n; ++r) {
      auto first = told.begin() + std::ptrdiff_t(s * counts.size() + r * block);
      there_[s * n + r] = back_[r * n + s] =
          std::accumulate(first, first + std::ptrdiff_t(block), int64_t{0});
      for (size_t i = 0; r == me && i < block; ++i)
        stretches_.push_back({int64_t(i % experts), first[std::ptrdiff_t(i)]});
    }
}

Tensor Exchange::moved(const Tensor& x, const std::vector<int64_t>& way,
                       const std::vector<int64_t>& other) const {
  if (!ranks_) return x;
  auto move = [ranks = ranks_](const Tensor& from, const std::vector<int64_t>& rows) {
    auto n = size_t(ranks->size()), me = size_t(ranks->rank());
    int64_t arriving = 0;
    for (size_t s = 0; s < n; ++s) arriving += rows[s * n + me];
    Tensor to = ranks->empty({arriving, from.size(1)}, from.dtype());
    ranks->all_to_all(from.detach().contiguous(), to, rows).wait();
    return to;
  };
  return record("exchange", move(x, way), {x},
                [=](const Tensor& dy) { return Tensors{move(dy, other)}; });
}

}  // namespace triax::parallel
