#pragma once
#include <algorithm>
#include <cmath>

#include "triax/autograd/ops.h"
#include "triax/nn/module.h"

namespace triax::nn {

struct Conv2dOptions {
  int64_t kernel = 3, stride = 1;
  int64_t padding = 1;
  int64_t groups = 1;  ///< groups of channels that see each other; as many as channels: depthwise
  bool bias = false;   ///< useless before a batch norm
  /// Standard deviation of the initial weight; 0: sqrt(2 / (kernel^2 out)), which keeps the size of
  /// gradients through ReLUs (He et al., "Delving deep into rectifiers", 2015, section 2.2).
  double std = 0;
  Shard shard = {};  ///< whole; other tensor-parallel ranks may hold the same
};

/// Square convolution, channels last: x [n, h, w, in] -> [n, oh, ow, out] (triax::conv2d). Weight
/// [out, kernel, kernel, in / groups], bias [out].
class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, const Conv2dOptions& o = {})
      : o_(o),
        weight_(parameter(
            {.name = "weight",
             .full = {out, o.kernel, o.kernel, in / std::max<int64_t>(1, o.groups)},
             .init = {.std =
                          o.std > 0 ? o.std : std::sqrt(2.0 / double(o.kernel * o.kernel * out))},
             .shard = o.shard,
             .decay = true})),
        bias_(o.bias ? &parameter({.name = "bias", .full = {out}, .shard = o.shard}) : nullptr) {}

  Tensor operator()(const Tensor& x) const {
    WindowShape windows{.stride = {o_.stride, o_.stride}, .padding = {o_.padding, o_.padding}};
    Tensor y = conv2d(x, weight_, {windows, o_.groups});
    return bias_ ? y + bias_->value : y;
  }

 private:
  Conv2dOptions o_;
  Parameter& weight_;
  Parameter* bias_;
};

}  // namespace triax::nn
