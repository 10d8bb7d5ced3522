#pragma once
#include <cstdint>
#include <string>

namespace triax::optim {

struct LossScaleOptions {
  enum class Kind { fixed, dynamic } kind = Kind::dynamic;
  double initial = 65536;  ///< 2^16; a fixed scale keeps it
  double minimum = 1;
  int64_t window = 1000;   ///< good steps in a row after which the scale doubles
  int64_t hysteresis = 2;  ///< overflows until the scale halves; 1: the first does
  /// Whether spent hysteresis is restored when the scale grows, as in Megatron-LM, or after a good
  /// step, as in DeepSpeed with `consecutive_hysteresis`.
  enum class Refill { on_growth, on_good_step } refill = Refill::on_growth;
  int64_t most_skips = 50;  ///< in a row, before the run is given up
};

/// The factor on the loss that keeps small gradients of fp16 above zero (Micikevicius et al.,
/// "Mixed precision training", 2018, section 3.2). Alike on all ranks if they agree on overflows.
///
///   scaler.scale()  in the seed of backward, and out of the gradient before clipping
///   scaler.update(overflowed)  after each step; a step that overflowed is skipped
class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  double scale() const { return scale_; }
  /// Returns the number of steps skipped in a row.
  int64_t skips() const { return skips_; }
  /// True if another step is useless: an overflow at the smallest scale, or too many in a row.
  bool exhausted() const { return exhausted_; }
  void update(bool overflowed);

  /// Returns its state beside the options, as text that reads back exactly.
  std::string state() const;
  /// Restores a state(). Throws Error 65 for any other text.
  void restore(const std::string& state);

 private:
  LossScaleOptions options_;
  double scale_;
  int64_t good_ = 0;  // steps in a row
  int64_t left_;      // overflows left before the scale halves
  int64_t skips_ = 0;
  bool exhausted_ = false;
};

}  // namespace triax::optim
