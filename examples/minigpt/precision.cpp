#include "examples/minigpt/precision.h"

#include "core/check.h"
#include "core/files.h"

namespace triax::minigpt {

DType dtype_of(const std::string& precision) {
  check_input(precision == "fp32" || precision == "bf16" || precision == "fp16", Exit::data,
              "precision is `{}`; expected fp32, bf16 or fp16", printable(precision));
  return precision == "bf16" ? bf16 : precision == "fp16" ? f16 : f32;
}

optim::LossScaleOptions scaling(const TrainConfig& c) {
  using Kind = optim::LossScaleOptions::Kind;
  if (c.precision != "fp16") return {.kind = Kind::fixed, .initial = 1};
  if (c.loss_scale > 0)
    return {.kind = Kind::fixed, .initial = c.loss_scale, .minimum = c.loss_scale};
  return {};
}

}  // namespace triax::minigpt
