#include "triax/core/functors/unary.h"

#include "triax/autograd/gelu.h"
#include "triax/autograd/ops/common.h"

namespace triax {
namespace autograd {

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

}  // namespace autograd

namespace {

enum class Slope { of_x, of_y };  // whether a functor's slope is a function of x or of y

template <class Functor, Slope slope> Tensor unary(const Tensor& input) {
  constexpr const char* name = Functor::name;
  autograd::check_float(name, input);
  constexpr Unary op = unary_id<Functor>();
  Tensor x = input.detach().contiguous(), y = empty_like(x);
  backend(x).unary(op, x, y);
  if constexpr (op == Unary::gelu) return autograd::record_gelu(y, input, x);
  Tensor kept = slope == Slope::of_x ? x : y.detach();
  return record(name, y, {input}, [kept](const Tensor& dy, autograd::Into& into) {
    auto [dx, write] = into.at(0, kept);
    backend(kept).unary_backward(op, kept, kept, dy, dx, write);
    return Tensors{dx};
  });
}

}  // namespace

Tensor operator-(const Tensor& x) { return unary<functors::Neg, Slope::of_x>(x); }
Tensor exp(const Tensor& x) { return unary<functors::Exp, Slope::of_y>(x); }
Tensor log(const Tensor& x) { return unary<functors::Log, Slope::of_x>(x); }
Tensor sqrt(const Tensor& x) { return unary<functors::Sqrt, Slope::of_y>(x); }
Tensor tanh(const Tensor& x) { return unary<functors::Tanh, Slope::of_y>(x); }
Tensor sigmoid(const Tensor& x) { return unary<functors::Sigmoid, Slope::of_y>(x); }
Tensor abs(const Tensor& x) { return unary<functors::Abs, Slope::of_x>(x); }
Tensor softplus(const Tensor& x) { return unary<functors::Softplus, Slope::of_x>(x); }
Tensor relu(const Tensor& x) { return unary<functors::Relu, Slope::of_y>(x); }
Tensor gelu(const Tensor& x) { return unary<functors::Gelu, Slope::of_x>(x); }
Tensor gelu_erf(const Tensor& x) { return unary<functors::GeluErf, Slope::of_x>(x); }
Tensor silu(const Tensor& x) { return unary<functors::Silu, Slope::of_x>(x); }

}  // namespace triax
