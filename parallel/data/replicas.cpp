#include "parallel/data/replicas.h"

#include "core/check.h"

namespace triax::parallel {

void DataReplicas::sum(const Tensor& x, int64_t ranks) const {
  check(ranks >= 1 && dp_.size() % ranks == 0, "replicas: sum over {} of {}; expected a divisor",
        ranks, dp_.size());
  if (ranks == dp_.size()) return dp_.all_reduce(x).wait();
  auto& group = groups_[ranks];
  if (!group) {
    auto seat = [ranks](int rank) {
      return Communicator::Seat{int(rank / ranks), int(rank % ranks)};
    };
    group = dp_.split(seat, fmt::format("statistics of {}", dp_.rank() / ranks));
  }
  group->all_reduce(x).wait();
}

}  // namespace triax::parallel
