#include "parallel/data/buckets/fixed_gradients.h"

#include "core/check.h"

namespace triax::parallel {

autograd::FixedSums FixedGradients::of(const nn::Parameter& p, const Communicator* tp) {
  check(!p.shard.partial || tp, "bitwise: parameter {} is partial; expected a mesh", p.name);
  auto& rounding = rounding_[p.shard.chains * (p.shard.partial ? tp->size() : 1)];
  if (!rounding) rounding = std::make_shared<FixedPoint>();
  return {rounding, p.shard.chains, p.shard.partial};
}

void FixedGradients::begin(int64_t micros, double scale) {
  for (auto& [chains, rounding] : rounding_)
    *rounding =
        FixedPoint::of(unit * scale, double(most_uses * micros * samples_ * replicas_ * chains));
}

void FixedGradients::check_uses(const nn::Parameter& p, int64_t micros) const {
  int64_t all = micros * samples_ * p.shard.chains, parts = take_parts(p.value);
  check_input(parts <= most_uses * all, Exit::config,
              "bitwise: parameter {} is used {} times in a pass; expected at most {}, whose sum is "
              "exact\n  Leave --bitwise out.",
              p.name, (parts + all - 1) / all, most_uses);
}

}  // namespace triax::parallel
