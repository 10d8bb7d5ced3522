#pragma once
#include <cmath>
#include <functional>

#include "triax/autograd/backward.h"
#include "triax/autograd/record.h"
#include "triax/core/check.h"

namespace triax {

struct GradcheckOptions {
  double step = 1e-6;       ///< of the central difference
  double tolerance = 1e-6;  ///< relative to 1 + the larger of the two slopes
};

namespace gradient_check {

inline Tensor fixed_weights(const Tensor& like) {
  std::vector<double> w(static_cast<size_t>(like.numel()));
  for (size_t i = 0; i < w.size(); ++i) w[i] = random::normal(0x9e37, i);
  return from_host(w, like.shape(), like.device());
}

inline double weighted_sum(const Tensor& y, const Tensor& weights) {
  auto a = y.to_host<double>(), b = weights.to_host<double>();
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

}  // namespace gradient_check

/// Compares the gradients of sum(weights * fn(inputs)), with fixed random weights, to central
/// differences, element by element. Inputs must be f64; they are made leaves. Throws Error 70 that
/// names input, element and both slopes where they differ.
inline void gradcheck(const std::function<Tensor(const Tensors&)>& fn, Tensors inputs,
                      const GradcheckOptions& options = {}) {
  for (auto& x : inputs) {
    check(x.dtype() == f64, "gradcheck: {}; expected f64", x);
    x = x.detach().contiguous();
    require_grad(x);
  }
  Tensor y = fn(inputs), weights = gradient_check::fixed_weights(y);
  backward(y, weights);
  NoGrad guard;
  for (size_t n = 0; n < inputs.size(); ++n) {
    const Tensor& x = inputs[n];
    Tensor flat = x.detach().view({x.numel()}), slopes = grad(x);
    check(x.numel() == 0 || slopes.defined(), "gradcheck: input {} got no gradient", n);
    for (int64_t i = 0; i < x.numel(); ++i) {
      Tensor element = flat.narrow(0, i, 1);
      double old = element.item();
      auto at = [&](double value) {
        fill_(element, value);
        return gradient_check::weighted_sum(fn(inputs), weights);
      };
      double expected = (at(old + options.step) - at(old - options.step)) / (2 * options.step);
      fill_(element, old);
      double got = slopes.contiguous().view({x.numel()}).narrow(0, i, 1).item();
      double scale = 1 + std::max(std::abs(expected), std::abs(got));
      check(std::abs(expected - got) <= options.tolerance * scale,
            "gradcheck: input {} {}, element {}: backward says {}, central difference {}", n,
            x.shape(), i, got, expected);
    }
  }
}

}  // namespace triax
