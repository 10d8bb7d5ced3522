#pragma once
#include <vector>

#include "triax/autograd/ops.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// The rows that ranks send to each other's experts in one layer, and back: agreed upon once.
class Exchange {
 public:
  /// `counts`: this rank's rows for [rank][part][expert of that rank], with so many `parts`, each
  /// of which the experts work on by itself. Null `ranks`: all experts are here. Collective.
  Exchange(Communicator* ranks, const std::vector<int64_t>& counts, int64_t parts);
  /// Sends rows that lie in the order of those counts -> what this rank's experts work on, [sender]
  /// [part][expert]. Their gradient goes the way back.
  Tensor there(const Tensor& x) const { return moved(x, there_, back_); }
  /// Sends that, or as many rows made of it, to where it came from.
  Tensor back(const Tensor& y) const { return moved(y, back_, there_); }
  /// Returns the experts of the rows that have come.
  const std::vector<Stretch>& stretches() const { return stretches_; }

 private:
  Tensor moved(const Tensor& x, const std::vector<int64_t>& way,
               const std::vector<int64_t>& other) const;

  Communicator* ranks_;
  std::vector<int64_t> there_, back_;  // rows [sender][receiver]
  std::vector<Stretch> stretches_;
};

}  // namespace triax::parallel
