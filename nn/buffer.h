#pragma once
#include <string>

#include "core/tensor.h"

namespace triax::nn {

/// What a module keeps beside its parameters, saved with them and not trained: a moving average of
/// what its layer notes of every micro-batch of training. It moves once a step, towards the mean of
/// what was noted of all micro-batches on all replicas: value += momentum (mean - value). So it
/// depends on no mesh, and a skipped step does not move it.
struct Buffer {
  std::string name;  ///< within its module; after bind() the full path, `stem.norm.mean`
  Shape shape;
  double init = 0, momentum = 0.1;
  Tensor value = {};  ///< f32, set by materialize or the trainer; no gradient
  Tensor noted = {};  ///< f32: the sum of what was noted since begin()
  int64_t notes = 0;

  /// Allocates what is undefined, and sets value to `init`.
  void materialize(Device device);
  /// Forget what was noted.
  void begin();
  /// Add x, of any float dtype and this shape, unless recompute() runs the layer a second time.
  void note(const Tensor& x);
  /// Move towards the mean of what was noted: a sum over `replicas` that noted as much each. With
  /// `plan`, a StepDecision on this device, only if that step happens.
  void move(int64_t replicas = 1, const Tensor& plan = {});
};

}  // namespace triax::nn
