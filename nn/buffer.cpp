#include "triax/nn/buffer.h"

#include <cstddef>
#include <numeric>

#include "triax/autograd/scopes.h"
#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/numbers/update.h"

namespace triax::nn {

void Buffer::materialize(Device device) {
  if (!value.defined()) value = empty(shape, f32, device);
  if (!sum.defined()) sum = empty(shape, f32, device);
  fill_(value, init);
  reset();
}

void Buffer::reset() {
  fill_(sum, 0);
  count = 0;
}

void Buffer::accumulate(const Tensor& x) {
  if (autograd::recomputing()) return;
  check(sum.defined() && x.shape() == shape,
        "buffer {}: accumulate of {}; expected {}, and materialize before", name, x, shape);
  backend(sum).accumulate(x.detach().contiguous(), sum);
  ++count;
}

void Buffer::update(int64_t replicas, const Tensor& decision) {
  if (count == 0) return;
  if (counts()) return update_by_counts(decision);
  backend(value).average(
      value, sum, {.rate = momentum, .scale = 1 / double(count * replicas), .decision = decision});
}

void Buffer::update_by_counts(const Tensor& decision) {
  if (value.device() == meta_device) return;
  constexpr size_t happens = offsetof(StepDecision, happens) / sizeof(double);
  if (decision.defined() && decision.to_host<double>()[happens] == 0) return;
  auto v = value.to_host<float>(), counted = sum.to_host<float>();
  double total = std::accumulate(counted.begin(), counted.end(), 0.),
         mean = total / double(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    double below = mean - double(counted[i]);
    if (rule == Rule::share) v[i] = total > 0 ? float(double(counted[i]) / total) : 0;
    else v[i] += float(momentum * ((below > 0) - (below < 0)));
  }
  copy_(value, from_host(v, value.shape(), value.device()));
}

}  // namespace triax::nn
