#include "parallel/data/replicas.h"

#include "core/check.h"

namespace triax::parallel {

/// Each group of ranks adds into a row of its own, so that no other communicators are needed: what
/// is summed is small.
void DataReplicas::sum(const Tensor& x, int64_t ranks) const {
  check(ranks >= 1 && dp_.size() % ranks == 0, "replicas: sum over {} of {}; expected a divisor",
        ranks, dp_.size());
  Tensor rows = zeros({dp_.size() / ranks, x.numel()}, x.dtype(), x.device());
  Tensor mine = rows.narrow(0, dp_.rank() / ranks, 1).view(x.shape());
  copy_(mine, x);
  dp_.all_reduce(rows).wait();
  copy_(x, mine);
}

}  // namespace triax::parallel
