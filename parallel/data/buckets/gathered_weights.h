#pragma once
#include <memory>

#include "triax/nn/layer.h"
#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

/// ZeRO-3: gathers weights for the layer that is at work, and drops them after it.
class GatheredWeights {
 public:
  explicit GatheredWeights(const HeldModel& m) : m_(m) {}
  /// Makes each layer's `run` gather its weights first and release them after.
  /// A layer's weights are there from the op at its input to the op at its output; in backward the
  /// same two, the other way round. The release hangs on the input's op, not on the last gradient,
  /// which a schedule may put off and an unused parameter never has.
  void surround(nn::Layers& chunk);
  /// Makes each layer's `run` wait for its weights, while those of later layers are gathered.
  void await(nn::Layers& chunk) const;
  /// Gathers all, for as long as the returned handle lives. Collective.
  std::shared_ptr<void> hold_all() const;
  /// Drops what was gathered ahead and not used. Throws if a layer is still at work.
  void end_step() const;

 private:
  using Unit = std::vector<Bucket*>;
  std::vector<Unit> units_of(const nn::Layers& chunk) const;
  void start_gather(Bucket& b) const;
  void acquire(Bucket& b) const;
  void release(Bucket& b) const;

  const HeldModel& m_;
};

}  // namespace triax::parallel
