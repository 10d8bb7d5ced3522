#pragma once
#include "core/backend.h"
#include "core/math.h"

namespace triax::functors {

/// What stays the same of an AdamWStep from step to step.
struct AdamRates {
  double beta1, beta2, eps, weight_decay;
};

/// AdamW's update of one element, and whether a step makes it; see AdamWStep.
template <class A> struct Adam {
  A shrink, beta1, beta2, rest1, rest2, rate, root, eps, scale;
  bool happens;

  TRIAX_HD static Adam of(const AdamRates& r, const StepDecision& p) {
    double rate = p.lr / (1 - __builtin_pow(r.beta1, p.step));
    double root = 1 / __builtin_sqrt(1 - __builtin_pow(r.beta2, p.step));
    return {A(1 - p.lr * r.weight_decay),
            A(r.beta1),
            A(r.beta2),
            A(1 - r.beta1),
            A(1 - r.beta2),
            A(rate),
            A(root),
            A(r.eps),
            A(p.grad_scale),
            p.happens != 0};
  }

  TRIAX_HD void operator()(bool decays, A g, A& w, A& m, A& v) const {
    A d = g * scale;
    m = beta1 * m + rest1 * d;
    v = beta2 * v + rest2 * d * d;
    w = w * (decays ? shrink : A(1)) - rate * m / (fn::sqrt(v) * root + eps);
  }
};

/// The same of SGD; see SgdStep.
template <class A> struct Sgd {
  static constexpr bool happens = true;
  A lr, momentum, decay, scale;
  bool remembers, starts, nesterov;

  TRIAX_HD explicit Sgd(const SgdStep& o)
      : lr(A(o.lr)),
        momentum(A(o.momentum)),
        decay(A(o.weight_decay)),
        scale(A(o.grad_scale)),
        remembers(o.momentum != 0),
        starts(o.step == 1),
        nesterov(o.form == SgdStep::Form::nesterov) {}

  TRIAX_HD void operator()(bool decays, A g, A& w, A& velocity, A&) const {
    A d = g * scale + (decays ? decay : A(0)) * w;
    // The first velocity is the gradient, whatever stood there before (it may be NaN).
    if (remembers) velocity = starts ? d : momentum * velocity + d;
    A step = !remembers ? d : nesterov ? d + momentum * velocity : velocity;
    w = w - lr * step;
  }
};

/// An average's step of one element; see AverageStep.
template <class A> struct Follow {
  A rate, scale;
  TRIAX_HD A operator()(A average, A x) const { return average + rate * (scale * x - average); }
};

}  // namespace triax::functors
