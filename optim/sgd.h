#pragma once
#include "triax/optim/momentum.h"

namespace triax::optim {

using SgdOptions = SgdRule;

/// Gradient descent, with momentum (Sutskever et al. 2013) and L2 weight decay added to the
/// gradient, over flat slots.
class Sgd final : public Momentum {
 public:
  Sgd(const std::vector<Slot>& slots, const SgdOptions& options = {});
};

}  // namespace triax::optim
