#pragma once
#include "core/backend.h"

namespace triax::host {

/// What all instruction levels share.
class Base : public Backend {
 public:
  ~Base() override;
  std::shared_ptr<Allocator> allocator() override;
};

/// This thread's cache of blocks. Blocks freed on another thread come back to it.
std::shared_ptr<Allocator> caching_allocator();

/// A block of that cache for a kernel's scratch memory (see scratch.h); free it on this thread.
void* allocate_scratch(size_t bytes);
void free_scratch(void* data, size_t bytes) noexcept;

}  // namespace triax::host
