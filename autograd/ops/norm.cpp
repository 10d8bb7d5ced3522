#include <memory>
#include <utility>

#include "triax/autograd/ops/common.h"

namespace triax {

using autograd::Into;
using autograd::rows_of;

namespace {

void check_weight(const char* op, const Tensor& x, const Tensor& w) {
  autograd::check_same(op, x, w);
  check(x.rank() >= 1 && w.shape() == Shape{x.size(-1)}, "{}: weight {} for x {}; expected [{}]",
        op, w.shape(), x.shape(), x.rank() ? x.size(-1) : 0);
}

Tensor normalize(const char* name, const Tensor& input, const Tensor& gamma, const Tensor& beta,
                 double eps) {
  autograd::check_float(name, input);
  check_weight(name, input, gamma);
  if (beta.defined()) check_weight(name, input, beta);
  Norm n{rows_of(input), gamma.detach().contiguous(), {}, {}, {}, eps};
  DType sums = accumulator(input.dtype());
  Shape rows{n.x.size(0)};
  n.rstd = empty(rows, sums, input.device());
  if (beta.defined()) {
    n.beta = beta.detach().contiguous();
    n.mean = empty(rows, sums, input.device());
  }
  Tensor y = empty(input.shape(), input.dtype(), input.device());
  backend(n.x).norm(n, rows_of(y));
  auto parts = std::make_shared<Tensor>();  // passed from one rule to the other
  auto input_rule = [n, parts](const Tensor& dy, Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    auto [dx, write] = into.at(0, dy);  // often the residual's gradient, which is there already
    *parts = backend(n.x).norm_backward(n, rows_of(dy), rows_of(dx), write);
    return Tensors{dx};
  };
  // Without gamma and beta: when a deferred rule runs, they may have been freed (ZeRO-3).
  Norm saved = n;
  saved.gamma = saved.beta = {};
  auto weight_rule = [n = saved, parts, shift = beta.defined(), sums](const Tensor& dy,
                                                                      Into& into) mutable {
    n.parts = std::exchange(*parts, {});
    Shape width{n.x.size(-1)};
    Sums dgamma = into.sums(0, width, sums, dy.device()), dbeta;
    if (shift) dbeta = into.sums(1, width, sums, dy.device());
    norm_backward_weights(n, rows_of(dy), dgamma, dbeta);
    return shift ? Tensors{dgamma.to, dbeta.to} : Tensors{dgamma.to};
  };
  Tensors weights{gamma};
  if (beta.defined()) weights.push_back(beta);
  return record(name, y, {input}, input_rule, weights, weight_rule);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  check(beta.defined(), "layer_norm: beta is undefined; rms_norm goes without");
  return normalize("layer_norm", x, gamma, beta, eps);
}

Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
  return normalize("rms_norm", x, gamma, {}, eps);
}

}  // namespace triax
