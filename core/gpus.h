#pragma once

namespace triax {

/// GPUs that this process may use; 0 in a build without CUDA and where there is no driver.
int gpu_count();

}  // namespace triax
