#pragma once
#include <cstddef>
#include <span>

#include "triax/core/numbers/half.h"

namespace triax {

/// The factor of gradients in an optimizer's step, and whether the step happens at all, follow from
/// the loss and the norm of its gradient, which a device knows before the host does.

/// The host's request for a step; as f64 in this order it is a tensor.
struct StepRequest {
  double lr;
  double step;        ///< counts from 1
  double loss_scale;  ///< the factor that the gradients carry
  double clip;        ///< largest norm; 0: any
  double halts;       ///< not 0: after totals that are not finite no later step happens either
  static constexpr int size = 5;
};

/// The totals of a step over all ranks; as f64 in this order they are a tensor.
struct StepTotals {
  double loss;
  double squares;     ///< of the gradients, loss scale included
  double non_finite;  ///< elements of gradients that are inf or NaN
  static constexpr int size = 3;
  TRIAX_HD bool finite() const { return loss - loss == 0 && non_finite == 0; }
};

/// The decision on a step; as f64 in this order it is a tensor. All 0 before the first step.
struct StepDecision {
  double lr;
  double step;
  double grad_scale;  ///< multiplies every gradient: clip factor / loss scale
  double happens;     ///< 0: nothing changes
  double halted;      ///< not 0: nor in any later step
  static constexpr int size = 5;
};

/// Returns the values of one of these, f64 [size].
template <class T> std::span<const double> values_of(const T& x) {
  return {reinterpret_cast<const double*>(&x), size_t(T::size)};
}

namespace fn {

/// Returns the factor that brings gradients of norm `norm` down to `limit`: limit / (norm + 1e-6)
/// if that is below 1, else 1 (Pascanu et al. 2013). limit 0 switches clipping off.
TRIAX_HD double clip_factor(double norm, double limit) {
  double factor = limit / (norm + 1e-6);
  return limit > 0 && factor < 1 ? factor : 1.;
}

TRIAX_HD StepDecision decide_step(const StepRequest& r, const StepTotals& totals,
                                  const StepDecision& before) {
  bool finite = totals.finite();
  double norm = finite ? __builtin_sqrt(totals.squares) / r.loss_scale : 0;
  bool halted = before.halted != 0 || (r.halts != 0 && !finite);
  return {r.lr, r.step, clip_factor(norm, r.clip) / r.loss_scale, finite && !halted ? 1. : 0.,
          halted ? 1. : 0.};
}

}  // namespace fn

}  // namespace triax
