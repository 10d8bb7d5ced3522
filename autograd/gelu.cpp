#include "autograd/gelu.h"

namespace triax::autograd {

Tensor record_gelu(Tensor y, const Tensor& x, const Tensor& kept) {
  // The slope needs x alone, so y is freed as soon as the op that takes it allows.
  y = record("gelu", std::move(y), {x}, [kept](const Tensor& dy, Into& into) {
    auto [dx, write] = into.at(0, kept);
    backend(kept).unary_backward(Unary::gelu, kept, kept, dy, dx, write);
    return Tensors{dx};
  });
  if (requires_grad(y)) y.meta()->gelu_of = kept;
  note_kept(y, {kept});
  return y;
}

Tensor gelu_input(const Tensor& y) {
  if (!requires_grad(y) || !y.meta()->gelu_of.defined()) return {};
  Tensor x = y.meta()->gelu_of.detach();
  x.meta() = std::make_shared<Meta>();
  x.meta()->node = y.meta()->node->inputs[0];
  return x;
}

}  // namespace triax::autograd
