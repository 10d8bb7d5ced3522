#pragma once
#include "triax/core/backend.h"
#include "triax/core/numbers/math.h"

namespace triax::functors {

/// AdamW's update of one element, and whether a step makes it; see AdamWRule.
template <class A> struct Adam {
  A shrink, beta1, beta2, rest1, rest2, rate, root, eps, scale;
  bool happens;

  TRIAX_HD void operator()(bool decays, A g, A& w, A& m, A& v) const {
    A d = g * scale;
    m = beta1 * m + rest1 * d;
    v = beta2 * v + rest2 * d * d;
    w = w * (decays ? shrink : A(1)) - rate * m / (fn::sqrt(v) * root + eps);
  }
};

/// SGD's update of one element; see SgdRule.
template <class A> struct Sgd {
  A lr, momentum, decay, scale;
  bool remembers, starts, nesterov, happens;

  TRIAX_HD void operator()(bool decays, A g, A& w, A& velocity, A&) const {
    A d = g * scale + (decays ? decay : A(0)) * w;
    // The first velocity is the gradient, whatever stood there before (it may be NaN).
    if (remembers) velocity = starts ? d : momentum * velocity + d;
    A step = !remembers ? d : nesterov ? d + momentum * velocity : velocity;
    w = w - lr * step;
  }
};

/// Lion's update of one element; see LionRule.
template <class A> struct Lion {
  A lr, beta1, beta2, decay, scale;
  bool happens;

  TRIAX_HD void operator()(bool decays, A g, A& w, A& m, A&) const {
    A d = g * scale, c = beta1 * m + (A(1) - beta1) * d;
    A sign = c > A(0) ? A(1) : c < A(0) ? A(-1) : c;  // 0 and NaN stay
    m = beta2 * m + (A(1) - beta2) * d;
    w = w - lr * (sign + (decays ? decay : A(0)) * w);
  }
};

/// Returns a rule's update, of one element and step.
template <class A> TRIAX_HD Adam<A> update_by(const AdamWRule& r, const StepDecision& p) {
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
template <class A> TRIAX_HD Sgd<A> update_by(const SgdRule& r, const StepDecision& p) {
  return {A(p.lr),
          A(r.momentum),
          A(r.weight_decay),
          A(p.grad_scale),
          r.momentum != 0,
          p.step == 1,
          r.form == SgdRule::Form::nesterov,
          p.happens != 0};
}
template <class A> TRIAX_HD Lion<A> update_by(const LionRule& r, const StepDecision& p) {
  return {A(p.lr), A(r.beta1), A(r.beta2), A(r.weight_decay), A(p.grad_scale), p.happens != 0};
}

/// An average's step of one element; see AverageStep.
template <class A> struct MovingAverage {
  A rate, scale;
  TRIAX_HD A operator()(A average, A x) const { return average + rate * (scale * x - average); }
};

}  // namespace triax::functors
