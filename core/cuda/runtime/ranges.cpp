#include <nvtx3/nvToolsExt.h>

#include "core/cuda/runtime/devices.h"

namespace triax::cuda {

void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

}  // namespace triax::cuda
