#pragma once
#include <string>

#include "parallel/train/step/step.h"

namespace triax::parallel {

/// Returns a warning of a first step that changes nothing, since all its gradients are 0; empty for
/// any other.
std::string warning_of(const StepResult& first, const StepOptions& o);

}  // namespace triax::parallel
