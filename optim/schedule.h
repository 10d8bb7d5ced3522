#pragma once
#include <cstdint>

namespace triax::optim {

/// A learning rate over steps (counted from 1): warm-up to `peak` at step `warmup`, then down to
/// `low` at step `steps`, and `low` after it; or constant at `peak`.
struct Schedule {
  enum class Decay { cosine, linear, constant } decay = Decay::cosine;
  /// The factor of the peak in warm-up step k: k / warmup, or log k / log warmup (DeepSpeed's
  /// `log`), which is 0 in step 1.
  enum class Warmup { linear, log } shape = Warmup::linear;
  double peak, low = 0;
  int64_t warmup = 0, steps;
  /// Returns the rate. Cosine: Loshchilov and Hutter, "SGDR", 2017, eq. 5, without restarts.
  double at(int64_t step) const;
};

/// Returns the factor that brings gradients of norm `norm` down to `limit`: limit / (norm + 1e-6)
/// if that is below 1, else 1 (Pascanu et al. 2013). limit 0 switches clipping off.
double clip_factor(double norm, double limit);

}  // namespace triax::optim
