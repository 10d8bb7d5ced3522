#pragma once
#include "triax/optim/momentum.h"

namespace triax::optim {

using LionOptions = LionRule;

/// Lion: steps of one size along the sign of an average of gradients (Chen et al., "Symbolic
/// discovery of optimization algorithms", 2023, algorithm 2), over flat slots. It has half of
/// AdamW's state. The paper takes a learning rate 3 to 10 times smaller than AdamW's, and as much
/// more weight decay (section 5).
class Lion final : public Momentum {
 public:
  Lion(const std::vector<Slot>& slots, const LionOptions& options = {});
};

}  // namespace triax::optim
