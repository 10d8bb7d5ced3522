#include "triax/autograd/ops/common.h"

namespace triax {

Tensor pad(const Tensor& x, const std::vector<Padding>& paddings, double value) {
  check(x.defined(), "pad: {}; expected a tensor", x);
  Shape shape = x.shape();
  for (const Padding& p : paddings) {
    check(p.before >= 0 && p.after >= 0,
          "pad: {} and {} elements around dim {} of {}; expected at least 0", p.before, p.after,
          p.dim, x.shape());
    shape[p.dim] += p.before + p.after;
  }
  auto inside = [paddings](Tensor y) {
    for (const Padding& p : paddings)
      y = y.narrow(p.dim, p.before, y.size(p.dim) - p.before - p.after);
    return y;
  };
  Tensor y = empty(shape, x.dtype(), x.device());
  fill_(y, value);
  copy_(inside(y), x.detach());
  return record("pad", y, {x}, [inside](const Tensor& dy) { return Tensors{inside(dy)}; });
}

}  // namespace triax
