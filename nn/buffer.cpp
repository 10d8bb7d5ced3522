#include "nn/buffer.h"

#include "autograd/touched.h"
#include "core/backend.h"
#include "core/check.h"

namespace triax::nn {

void Buffer::materialize(Device device) {
  if (!value.defined()) value = empty(shape, f32, device);
  if (!noted.defined()) noted = empty(shape, f32, device);
  fill_(value, init);
  begin();
}

void Buffer::begin() {
  fill_(noted, 0);
  notes = 0;
}

void Buffer::note(const Tensor& x) {
  if (autograd::recomputing()) return;
  check(noted.defined() && x.shape() == shape, "buffer {}: {} noted; expected {}, after {}", name,
        describe(x), shape, "materialize");
  backend(noted).accumulate(x.detach().contiguous(), noted);
  ++notes;
}

void Buffer::move(int64_t replicas, const Tensor& plan) {
  if (notes == 0) return;
  backend(value).average(value, noted,
                         {.rate = momentum, .scale = 1 / double(notes * replicas), .plan = plan});
}

}  // namespace triax::nn
