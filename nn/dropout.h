#pragma once
#include "triax/autograd/ops.h"
#include "triax/nn/batch.h"
#include "triax/nn/module.h"

namespace triax::nn {

/// A random stream named after its place in the model. Its mask is a function of (seed, name, token
/// since the start of training, feature), never of the mesh.
class Dropout : public Module {
 public:
  explicit Dropout(double p) : p_(float(p)) {}
  /// Returns the mask of rows; `row`: serial number of the first since the start of training.
  random::Mask mask(int64_t row, int64_t column = 0) const {
    return {row == evaluation ? 0 : p_, key(), row, column};
  }
  Tensor operator()(const Tensor& x, int64_t row) const { return dropout(x, mask(row)); }

 private:
  float p_;
};

}  // namespace triax::nn
