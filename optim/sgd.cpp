#include "optim/sgd.h"

#include "core/check.h"

namespace triax::optim {

Sgd::Sgd(const std::vector<Slot>& slots, const SgdOptions& options)
    : Momentum("sgd", slots, options.momentum > 0 ? "velocity" : nullptr, options) {
  check(options.momentum >= 0 && options.momentum < 1, "sgd: momentum {}; expected 0 <= it < 1",
        options.momentum);
}

}  // namespace triax::optim
