#pragma once
#include <map>
#include <memory>

#include "triax/core/check.h"
#include "triax/nn/batch.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// The ranks of the dp axis, for layers that share statistics over them.
class DataReplicas : public nn::Replicas {
 public:
  /// `dp` must outlive it.
  explicit DataReplicas(Communicator& dp) : dp_(dp) {}
  int64_t count() const override { return dp_.size(); }
  /// Sums x; the first call for a number of ranks makes their communicators.
  void sum(const Tensor& x, int64_t ranks) const override {
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

 private:
  Communicator& dp_;
  mutable std::map<int64_t, std::unique_ptr<Communicator>> groups_;  // by ranks in a group
};

}  // namespace triax::parallel
