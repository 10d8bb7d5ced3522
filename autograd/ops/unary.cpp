#include "autograd/gelu.h"
#include "autograd/ops/common.h"

namespace triax {
namespace {

enum class Slope { of_x, of_y };  // of which of the two a functor's slope is a function

template <class Functor, Slope slope> Tensor unary(const char* name, const Tensor& input) {
  autograd::check_float(name, input);
  constexpr Unary op = unary_id<Functor>();
  Tensor x = input.contiguous().detach(), y = empty_like(x);
  backend(x).unary(op, x, y);
  Tensor kept = slope == Slope::of_x ? x : y.detach();
  return record(name, y, {input}, [kept](const Tensor& dy, autograd::Into& into) {
    auto [dx, write] = into.at(0, kept);
    backend(kept).unary_backward(op, kept, kept, dy, dx, write);
    return Tensors{dx};
  });
}

}  // namespace

Tensor operator-(const Tensor& x) { return unary<functors::Neg, Slope::of_x>("neg", x); }
Tensor exp(const Tensor& x) { return unary<functors::Exp, Slope::of_y>("exp", x); }
Tensor log(const Tensor& x) { return unary<functors::Log, Slope::of_x>("log", x); }
Tensor sqrt(const Tensor& x) { return unary<functors::Sqrt, Slope::of_y>("sqrt", x); }
Tensor tanh(const Tensor& x) { return unary<functors::Tanh, Slope::of_y>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<functors::Sigmoid, Slope::of_y>("sigmoid", x); }
Tensor relu(const Tensor& x) { return unary<functors::Relu, Slope::of_x>("relu", x); }
Tensor gelu(const Tensor& input) {
  autograd::check_float("gelu", input);
  Tensor x = input.contiguous().detach(), y = empty_like(x);
  backend(x).unary(unary_id<functors::Gelu>(), x, y);
  return autograd::record_gelu(y, input, x);
}
Tensor gelu_erf(const Tensor& x) { return unary<functors::GeluErf, Slope::of_x>("gelu_erf", x); }
Tensor silu(const Tensor& x) { return unary<functors::Silu, Slope::of_x>("silu", x); }

}  // namespace triax
