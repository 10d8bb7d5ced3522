#include "triax/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "triax/core/check.h"
#include "triax/core/numbers/update.h"

namespace triax::optim {

double Schedule::at(int64_t step) const {
  check(step >= 1 && warmup >= 0 && steps >= 1,
        "schedule: step {}, warmup {}, steps {}; expected step and steps from 1, warmup from 0",
        step, warmup, steps);
  if (step <= warmup && shape == Warmup::log)
    return peak * std::log(double(step)) / std::log(double(std::max<int64_t>(warmup, 2)));
  if (step <= warmup) return peak * double(step) / double(warmup);
  if (decay == Decay::constant) return peak;
  double done = steps > warmup ? double(step - warmup) / double(steps - warmup) : 1;
  done = std::min(done, 1.0);
  double share = decay == Decay::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return low + (peak - low) * share;
}

double clip_factor(double norm, double limit) { return fn::clip_factor(norm, limit); }

}  // namespace triax::optim
