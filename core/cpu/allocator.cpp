#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/cpu/base.h"
#include "triax/core/cpu/levels.h"

namespace triax::host {
namespace {

// Fresh pages are what makes eager training slow on a CPU: the kernel zeroes each one at first
// touch. A step asks for the same sizes as the step before, so blocks are kept by size class.
class Cache final : public Allocator {
 public:
  ~Cache() override {
    trim();
    give_back_rest();
  }

  void* allocate(size_t bytes) override {
    size_t size = size_class(bytes);
    void* data = take(size);
    if (!data) {
      trim();
      data = take(size);
    }
    check_input(data != nullptr, Exit::memory,
                "memory: no {} bytes left on the host; {} bytes of tensors are alive on this rank",
                size, memory::counter()->live());
    return data;
  }

  void deallocate(void* data, size_t bytes) noexcept override {
    std::lock_guard guard(mutex_);
    free_[size_class(bytes)].push_back(data);
  }

  void trim() {
    std::lock_guard guard(mutex_);
    for (auto& [size, blocks] : free_) {
      for (void* data : blocks) unmap(data, size);
      blocks.clear();
    }
  }

 private:
  static constexpr size_t mapped = size_t{1} << 17;  // from this size on, mapped from the kernel
  static constexpr size_t huge_page = size_t{1} << 21;
  static constexpr size_t reserved = size_t{1} << 26;  // bytes of address space reserved at a time

  /// Rounds up to one of eight classes per power of two (at most an eighth is wasted) or to pages.
  static size_t size_class(size_t bytes) {
    if (bytes <= 512) return (bytes + 63) / 64 * 64;
    size_t step = std::bit_floor(bytes - 1) / 8;
    return (bytes + step - 1) / step * step;
  }

  /// Returns a block that was freed, or a new one; null where there is no memory.
  void* take(size_t size) {
    std::lock_guard guard(mutex_);
    auto& blocks = free_[size];
    if (blocks.empty()) return map(size);
    void* data = blocks.back();
    blocks.pop_back();
    return data;
  }

  /// Maps blocks side by side, so that they share huge pages: faults and misses of the translation
  /// buffer are fewer. A block mapped alone would have small pages at its ends.
  void* map(size_t size) {
    if (size < mapped) return std::aligned_alloc(64, size);
    if (size_t(end_ - next_) < size && !reserve(size)) return nullptr;
    next_ += size;
    return next_ - size;
  }
  static void unmap(void* data, size_t size) {
    if (size < mapped) std::free(data);
    else munmap(data, size);
  }

  /// Reserves address space for `size` bytes and more, from a huge page on; where a limit of the
  /// process is near (ulimit -v, -d), for `size` bytes alone.
  bool reserve(size_t size) {
    give_back_rest();
    for (size_t more : {std::max(reserved, size) - size + huge_page, size_t{0}}) {
      void* data =
          mmap(nullptr, size + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) continue;
      next_ = static_cast<char*>(data), end_ = next_ + size + more;
      size_t skip = more > 0 ? -reinterpret_cast<uintptr_t>(data) % huge_page : 0;
      if (skip > 0) munmap(data, skip);
      next_ += skip;
      madvise(next_, size_t(end_ - next_), MADV_HUGEPAGE);  // only advice
      return true;
    }
    return false;
  }
  void give_back_rest() {
    if (next_ != end_) munmap(next_, size_t(end_ - next_));
    next_ = end_ = nullptr;
  }

  char *next_ = nullptr, *end_ = nullptr;  // address space no block has had yet
  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
};

thread_local std::shared_ptr<Cache> cache = std::make_shared<Cache>();

}  // namespace

Base::~Base() = default;
std::shared_ptr<Allocator> Base::allocator() { return cache; }
void* allocate_scratch(size_t bytes) { return bytes ? cache->allocate(bytes) : nullptr; }
void free_scratch(void* data, size_t bytes) noexcept {
  if (data) cache->deallocate(data, bytes);
}
void trim_memory() { cache->trim(); }

}  // namespace triax::host
