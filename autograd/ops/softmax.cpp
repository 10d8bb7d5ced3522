#include "triax/autograd/ops/common.h"

namespace triax {

using autograd::rows_of;

Tensor softmax(const Tensor& x) {
  autograd::check_float("softmax", x);
  check(x.rank() >= 1, "softmax: {}; expected at least one dim", x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  backend(x).softmax(rows_of(x), rows_of(y));
  // dx = y * (dy - sum(y * dy))
  return record("softmax", y, {x}, [y = y.detach()](const Tensor& dy) {
    Tensor dx = empty_like(dy);
    backend(y).softmax_backward(rows_of(y), rows_of(dy), rows_of(dx));
    return Tensors{dx};
  });
}

Tensor log_softmax(const Tensor& x) {
  autograd::check_float("log_softmax", x);
  check(x.rank() >= 1, "log_softmax: {}; expected at least one dim", x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  backend(x).log_softmax(rows_of(x), rows_of(y));
  // dx = dy - exp(y) * sum(dy)
  return record("log_softmax", y, {x}, [y = y.detach()](const Tensor& dy) {
    Tensor dx = empty_like(dy);
    backend(y).log_softmax_backward(rows_of(y), rows_of(dy), rows_of(dx));
    return Tensors{dx};
  });
}

}  // namespace triax
