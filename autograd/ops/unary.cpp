#include "autograd/ops/common.h"

namespace triax {
namespace {

template <class Functor> Tensor unary(const char* name, const Tensor& input) {
  autograd::check_float(name, input);
  constexpr Unary op = unary_id<Functor>();
  Tensor x = input.contiguous().detach(), y = empty_like(x);
  backend(x).unary(op, x, y);
  return record(name, y, {input}, [x, y = y.detach()](const Tensor& dy, autograd::Into& into) {
    auto [dx, write] = into.at(0, x);
    backend(x).unary_backward(op, x, y, dy, dx, write);
    return Tensors{dx};
  });
}

}  // namespace

Tensor operator-(const Tensor& x) { return unary<functors::Neg>("neg", x); }
Tensor exp(const Tensor& x) { return unary<functors::Exp>("exp", x); }
Tensor log(const Tensor& x) { return unary<functors::Log>("log", x); }
Tensor sqrt(const Tensor& x) { return unary<functors::Sqrt>("sqrt", x); }
Tensor tanh(const Tensor& x) { return unary<functors::Tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<functors::Sigmoid>("sigmoid", x); }
Tensor relu(const Tensor& x) { return unary<functors::Relu>("relu", x); }
Tensor gelu(const Tensor& x) { return unary<functors::Gelu>("gelu", x); }
Tensor gelu_erf(const Tensor& x) { return unary<functors::GeluErf>("gelu_erf", x); }
Tensor silu(const Tensor& x) { return unary<functors::Silu>("silu", x); }

}  // namespace triax
