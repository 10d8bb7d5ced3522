#include "optim/lion.h"

#include "core/check.h"

namespace triax::optim {

Lion::Lion(const std::vector<Slot>& slots, const LionOptions& options)
    : Momentum("lion", slots, "m", options) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  check(in_unit(options.beta1) && in_unit(options.beta2),
        "lion: beta1 {}, beta2 {}; expected betas in [0, 1)", options.beta1, options.beta2);
}

}  // namespace triax::optim
