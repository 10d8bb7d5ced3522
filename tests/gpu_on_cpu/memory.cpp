#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/gpu_on_cpu/device.h"

namespace triax::gpu_on_cpu {

namespace {

constexpr size_t page = 4096;
constexpr size_t alignment = 256;

std::mutex running_mutex;
int running = 0;
bool open = false;

}  // namespace

Memory::Memory(size_t bytes)
    : bytes_((bytes + page - 1) / page * page), file_(memfd_create("gpu", MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, off_t(bytes_)) != 0) std::abort();
  void* at = mmap(nullptr, bytes_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (at == MAP_FAILED) std::abort();
  base_ = static_cast<char*>(at);
}
Memory::~Memory() {
  munmap(base_, bytes_);
  close(file_);
}

Where Memory::where(const void* data) const {
  return {getpid(), file_, bytes_, size_t(static_cast<const char*>(data) - base_)};
}

void* Memory::address(const Where& where) const {
  return where.process == getpid() && where.file == file_ ? base_ + where.offset : nullptr;
}

Where where_is(const void* data) {
  for (auto& memory : memories())
    if (memory->holds(data)) return memory->where(data);
  if (data) std::abort();  // NCCL moves tensors of GPUs alone
  return {};
}

void* address_of(const Where& where) {
  static std::mutex mutex;
  static auto& mapped = *new std::map<std::pair<int, int>, char*>;
  if (where.process == 0) return nullptr;
  for (auto& memory : memories())
    if (void* own = memory->address(where)) return own;
  std::lock_guard guard(mutex);
  char*& base = mapped[{where.process, where.file}];
  if (!base) {
    int file = open_in_process(where.process, where.file);
    void* at =
        mmap(nullptr, where.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) return nullptr;  // the process is gone
    base = static_cast<char*>(at);
    close(file);
  }
  return base + where.offset;
}

int open_in_process(int process, int file) {
  std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

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
