#include <sys/mman.h>

#include <cstdlib>

#include "tests/gpu_on_cpu/device.h"

namespace triax::gpu_on_cpu {

namespace {

constexpr size_t page = 4096;
constexpr size_t alignment = 256;

std::mutex running_mutex;
int running = 0;
bool open = false;

}  // namespace

Memory::Memory(size_t bytes) : bytes_((bytes + page - 1) / page * page) {
  void* at = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  base_ = static_cast<char*>(at);
}
Memory::~Memory() { munmap(base_, bytes_); }

void* Memory::allocate(size_t bytes) {
  bytes = (bytes + alignment - 1) / alignment * alignment;
  std::lock_guard guard(mutex_);
  size_t at = 0;
  for (const auto& [begin, length] : used_) {
    if (begin - at >= bytes) break;
    at = begin + length;
  }
  if (bytes_ - at < bytes) return nullptr;
  used_[at] = bytes;
  return base_ + at;
}

bool Memory::free(void* data) {
  std::lock_guard guard(mutex_);
  return holds(data) && used_.erase(size_t(static_cast<char*>(data) - base_)) == 1;
}

size_t Memory::unused() const {
  std::lock_guard guard(mutex_);
  size_t sum = bytes_;
  for (const auto& block : used_) sum -= block.second;
  return sum;
}

bool Memory::holds(const void* data) const {
  auto* at = static_cast<const char*>(data);
  return at >= base_ && at < base_ + bytes_;
}

namespace {

void protect(int how) {
  for (auto& memory : memories()) memory->protect(how);
}

}  // namespace

Running::Running() {
  std::lock_guard guard(running_mutex);
  ++running;
  if (!open) protect(PROT_READ | PROT_WRITE);
  open = true;
}
Running::~Running() {
  std::lock_guard guard(running_mutex);
  --running;
}

void close_memory() {
  std::lock_guard guard(running_mutex);
  if (running > 0 || !open) return;
  protect(PROT_NONE);
  open = false;
}

void Memory::protect(int how) {
  if (mprotect(base_, bytes_, how) != 0) std::abort();
}

}  // namespace triax::gpu_on_cpu
