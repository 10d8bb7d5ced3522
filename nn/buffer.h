#pragma once
#include <string>

#include "core/tensor.h"

namespace triax::nn {

/// A tensor that a module keeps beside its parameters, saved with them and not trained: a running
/// average of what its layer accumulates in every micro-batch of training. Once a step it is
/// updated with the mean over all micro-batches of all replicas: value += momentum (mean - value).
/// So it depends on no mesh, and a skipped step leaves it as it is.
struct Buffer {
  std::string name;  ///< within its module; after bind() the full path, `stem.norm.mean`
  Shape shape;
  double init = 0, momentum = 0.1;
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
  /// Moves value towards the mean. `sum` is over `replicas` that have accumulated equally often.
  /// With `decision`, a StepDecision on this device, only if that step happens.
  void update(int64_t replicas = 1, const Tensor& decision = {});
};

}  // namespace triax::nn
