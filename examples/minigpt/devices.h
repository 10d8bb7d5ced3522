#pragma once
#include <string>

#include "core/device.h"

namespace triax::minigpt {

/// `cpu`, `cuda:N`, or `cuda`, which is a GPU of each rank's own (parallel/comm/world.h). Throws
/// Error 78 for another text.
Device device_named(const std::string& text);

}  // namespace triax::minigpt
