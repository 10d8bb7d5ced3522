#include "nn/buffer.h"

#include "autograd/touched.h"
#include "core/backend.h"
#include "core/check.h"

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
  backend(value).average(
      value, sum, {.rate = momentum, .scale = 1 / double(count * replicas), .decision = decision});
}

}  // namespace triax::nn
