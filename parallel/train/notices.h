#pragma once
#include <string>

#include "parallel/train/step/step.h"

namespace triax::parallel {

/// Returns a warning if a first step changes nothing, since all its gradients are 0; else an empty
/// text.
std::string warning_of(const StepResult& first, const StepOptions& o);

}  // namespace triax::parallel
