#pragma once
#include <string>

#include "core/device.h"

namespace triax::parallel {

/// `cpu`, `cuda:N`, or `cuda`, which is a GPU of each rank's own (WorldOptions::own_gpu). Throws
/// Error 78 for another text.
Device device_named(const std::string& text);

}  // namespace triax::parallel
