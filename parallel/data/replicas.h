#pragma once
#include <map>
#include <memory>

#include "nn/batch.h"
#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// The ranks of the dp axis, for layers that share statistics over them.
class DataReplicas : public nn::Replicas {
 public:
  /// `dp` must outlive it.
  explicit DataReplicas(Communicator& dp) : dp_(dp) {}
  int64_t count() const override { return dp_.size(); }
  /// Sums x; the first call for a number of ranks makes their communicators.
  void sum(const Tensor& x, int64_t ranks) const override;

 private:
  Communicator& dp_;
  mutable std::map<int64_t, std::unique_ptr<Communicator>> groups_;  // by ranks in a group
};

}  // namespace triax::parallel
