#include "triax/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::optim {

LossScaler::LossScaler(const LossScaleOptions& o)
    : options_(o), scale_(o.initial), left_(o.hysteresis) {
  check(std::isfinite(o.initial) && o.minimum > 0 && o.initial >= o.minimum && o.window >= 1 &&
            o.hysteresis >= 1 && o.most_skips >= 1,
        "loss scaler: initial {}, minimum {}, window {}, hysteresis {}, most skips {}; expected a "
        "finite scale, minimum above 0 and below it, the others from 1",
        o.initial, o.minimum, o.window, o.hysteresis, o.most_skips);
}

void LossScaler::update(bool overflowed) {
  using Kind = LossScaleOptions::Kind;
  if (!overflowed) {
    skips_ = 0;
    if (options_.refill == LossScaleOptions::Refill::on_good_step) left_ = options_.hysteresis;
    if (++good_ < options_.window || options_.kind == Kind::fixed) return;
    good_ = 0;
    left_ = options_.hysteresis;
    if (std::isfinite(scale_ * 2)) scale_ *= 2;
    return;
  }
  good_ = 0;
  exhausted_ = ++skips_ >= options_.most_skips;
  if (options_.kind == Kind::fixed || --left_ > 0) return;
  left_ = std::max<int64_t>(left_, 0);
  exhausted_ |= scale_ <= options_.minimum;
  scale_ = std::max(scale_ / 2, options_.minimum);
}

std::string LossScaler::state() const {
  return fmt::format("{} {} {} {}", scale_, good_, left_, skips_);
}

void LossScaler::restore(const std::string& state) {
  std::istringstream in(state);
  double scale = 0;
  int64_t good = 0, left = 0, skips = 0;
  std::string more;
  bool whole = bool(in >> scale >> good >> left >> skips) && !(in >> more);
  check_input(whole && std::isfinite(scale) && scale > 0 && good >= 0 && left >= 0 && skips >= 0,
              Exit::data, "loss scaler: state `{}`; expected scale, good steps, hysteresis, skips",
              printable(state));
  if (options_.kind == LossScaleOptions::Kind::dynamic)
    scale_ = scale;  // a fixed one was asked for
  good_ = good, left_ = left, skips_ = skips;
  exhausted_ = false;
}

}  // namespace triax::optim
