#include <nvtx3/nvToolsExt.h>

#include "triax/core/gpus.h"

namespace triax {

void begin_gpu_range(const char* name) { nvtxRangePushA(name); }
void end_gpu_range() { nvtxRangePop(); }

}  // namespace triax
