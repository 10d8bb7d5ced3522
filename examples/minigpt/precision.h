#pragma once
#include <string>

#include "core/dtype.h"
#include "examples/minigpt/config.h"
#include "optim/loss_scaler.h"

namespace triax::minigpt {

/// Of weights and activations: fp32, bf16, fp16. Throws Error 65 for another word.
DType dtype_of(const std::string& precision);

/// How the loss is scaled: only fp16 needs it, fixed if --loss-scale says so.
optim::LossScaleOptions scaling(const TrainConfig& c);

}  // namespace triax::minigpt
