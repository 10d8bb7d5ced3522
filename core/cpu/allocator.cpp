#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/check.h"
#include "core/cpu/base.h"
#include "core/cpu/levels.h"

namespace triax::host {
namespace {

// Fresh pages are what makes eager training slow on a CPU: the kernel zeroes each one at first
// touch. A step asks for the same sizes as the step before, so blocks are kept by size class.
class Cache final : public Allocator {
 public:
  ~Cache() override {
    trim();
    if (next_ != end_) munmap(next_, size_t(end_ - next_));
  }

  void* allocate(size_t bytes) override {
    size_t size = size_class(bytes);
    {
      std::lock_guard guard(mutex_);
      auto& blocks = free_[size];
      if (!blocks.empty()) {
        void* data = blocks.back();
        blocks.pop_back();
        return data;
      }
    }
    void* data = map(size);
    if (!data) {
      trim();
      data = map(size);
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
  static constexpr size_t mapped = size_t{1} << 17;  // from here on straight from the kernel
  static constexpr size_t page = size_t{1} << 12, huge_page = size_t{1} << 21;
  static constexpr size_t reserved = size_t{1} << 26;  // at a time; a page counts once it is used

  /// Eight classes per power of two: at most an eighth is wasted.
  static size_t size_class(size_t bytes) {
    if (bytes <= 512) return (bytes + 63) / 64 * 64;
    size_t step = std::bit_floor(bytes - 1) / 8;
    return (bytes + step - 1) / step * step;
  }

  static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

  /// Mapped blocks lie side by side, so that they share huge pages: faults and misses of the
  /// translation buffer are fewer. A block mapped alone has none at its ends.
  void* map(size_t size) {
    if (size < mapped) return std::aligned_alloc(64, size);
    size = round_up(size, page);
    if (size_t(end_ - next_) < size && !reserve(size)) return nullptr;
    next_ += size;
    return next_ - size;
  }
  static void unmap(void* data, size_t size) {
    if (size < mapped) std::free(data);
    else munmap(data, round_up(size, page));
  }

  /// Address space for blocks of `size` bytes, from a huge page on; the rest of the one before is
  /// given back.
  bool reserve(size_t size) {
    size = std::max(reserved, round_up(size, huge_page));
    void* data =
        mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return false;
    if (next_ != end_) munmap(next_, size_t(end_ - next_));
    char* first = static_cast<char*>(data);
    next_ = first + round_up(reinterpret_cast<uintptr_t>(first), huge_page) -
            reinterpret_cast<uintptr_t>(first);
    end_ = next_ + size;
    if (next_ != first) munmap(first, size_t(next_ - first));
    if (end_ != first + size + huge_page) munmap(end_, size_t(first + size + huge_page - end_));
    madvise(next_, size, MADV_HUGEPAGE);  // only advice
    return true;
  }

  char *next_ = nullptr, *end_ = nullptr;  // address space no block has had yet
  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
};

thread_local std::shared_ptr<Cache> cache = std::make_shared<Cache>();

}  // namespace

Base::~Base() = default;
std::shared_ptr<Allocator> Base::allocator() { return cache; }
std::shared_ptr<Allocator> caching_allocator() { return cache; }
void* allocate_scratch(size_t bytes) { return bytes ? cache->allocate(bytes) : nullptr; }
void free_scratch(void* data, size_t bytes) noexcept {
  if (data) cache->deallocate(data, bytes);
}
void trim_memory() { cache->trim(); }

}  // namespace triax::host
