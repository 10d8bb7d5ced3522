#pragma once
#include <cstddef>

namespace triax::host {

/// Working memory of a kernel: at least `bytes`, 64-byte aligned, not initialised, the calling
/// thread's own and kept for its next kernel; a second call on the same thread takes it back. Not
/// counted as tensor memory. Throws Error 71. Call it outside parallel regions, for all threads of
/// the team at once, since nothing may be thrown out of one.
void* scratch(size_t bytes);

}  // namespace triax::host
