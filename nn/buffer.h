#pragma once
#include <string>

#include "triax/core/tensor.h"

namespace triax::nn {

/// A tensor that a module keeps beside its parameters, saved with them and not trained: what its
/// layer accumulates in every micro-batch of training updates it once a step, over all
/// micro-batches of all replicas. So it depends on no mesh, and a skipped step leaves it as it is.
struct Buffer {
  /// How it is updated.
  enum class Rule {
    average,  ///< value += momentum (mean - value), of the micro-batches' mean
    share,    ///< value = sum / the total of the sum, of counts: exact up to 2^24
    balance   ///< value += momentum sign(mean of the sum - sum), of counts: what is above falls
  };
  std::string name;  ///< within its module; after bind() the full path, `stem.norm.mean`
  Shape shape;
  double init = 0, momentum = 0.1;
  Rule rule = Rule::average;
  Tensor value = {};  ///< f32, set by materialize or the trainer; no gradient
  Tensor sum = {};    ///< f32: the sum accumulated since reset()
  int64_t count = 0;  ///< terms in `sum`

  /// Allocates what is undefined, and sets value to `init`.
  void materialize(Device device);
  /// Sets sum and count to 0.
  void reset();
  /// Adds x, of any float dtype and this shape, to `sum`; does nothing when recompute() runs a part
  /// for the second time.
  void accumulate(const Tensor& x);
  /// True if it is made of counts, whose sum no mesh rounds.
  bool counts() const { return rule != Rule::average; }
  /// Updates the value. `sum` is over `replicas` that have accumulated equally often.
  /// With `decision`, a StepDecision on this device, only if that step happens.
  void update(int64_t replicas = 1, const Tensor& decision = {});

 private:
  void update_by_counts(const Tensor& decision);
};

}  // namespace triax::nn
