#pragma once
#include "autograd/ops.h"
#include "nn/batch.h"
#include "nn/module.h"

namespace triax::nn {

/// A random stream named after its place in the model. Which elements it drops depends on (seed,
/// name, token since the start of training, feature), never on the mesh.
class Dropout : public Module {
 public:
  explicit Dropout(double p) : p_(float(p)) {}
  /// The mask of rows whose first has serial number `row` since the start of training.
  random::Mask mask(int64_t row, int64_t column = 0) const {
    return {row == evaluation ? 0 : p_, key(), row, column};
  }
  Tensor operator()(const Tensor& x, int64_t row) const { return dropout(x, mask(row)); }

 private:
  float p_;
};

}  // namespace triax::nn
