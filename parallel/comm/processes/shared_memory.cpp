#include "parallel/comm/processes/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "core/backend.h"

namespace triax::parallel {
namespace {

constexpr size_t page = size_t{1} << 21;  // claimed in steps of this
constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, Linux 5.14; absent from old headers

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

class SharedAllocator final : public Allocator {
 public:
  explicit SharedAllocator(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  void* allocate(size_t bytes) override {
    if (void* data = memory_->allocate(bytes)) return data;
    return other_->allocate(bytes);
  }
  void deallocate(void* data, size_t bytes) noexcept override {
    if (memory_->find(data).segment >= 0) memory_->deallocate(data, bytes);
    else other_->deallocate(data, bytes);
  }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<Allocator> other_ = backend(cpu).allocator();
};

}  // namespace

SharedMemory::SharedMemory(std::vector<Segment> segments, int mine)
    : segments_(std::move(segments)),
      bytes_(segments_[0].bytes()),
      mine_(mine),
      free_{{0, bytes_}} {}

SharedMemory::Address SharedMemory::find(const void* data) const {
  auto at = reinterpret_cast<uintptr_t>(data);
  for (size_t s = 0; s < segments_.size(); ++s) {
    auto begin = reinterpret_cast<uintptr_t>(segments_[s].data());
    if (at >= begin && at < begin + bytes_) return {int32_t(s), int64_t(at - begin)};
  }
  return {};
}

void* SharedMemory::allocate(size_t bytes) {
  std::lock_guard guard(mutex_);
  bytes = rounded(std::max<size_t>(bytes, 1), 64);
  auto room = std::find_if(free_.begin(), free_.end(), [&](auto& f) { return f.second >= bytes; });
  if (room == free_.end() || !claim_pages(room->first + bytes)) return nullptr;
  auto [first, size] = *room;
  free_.erase(room);
  if (size > bytes) free_[first + bytes] = size - bytes;
  return begin(mine_) + first;
}

void SharedMemory::deallocate(void* data, size_t bytes) noexcept {
  std::lock_guard guard(mutex_);
  auto first = size_t(static_cast<std::byte*>(data) - begin(mine_));
  size_t size = rounded(std::max<size_t>(bytes, 1), 64);
  auto next = free_.lower_bound(first);
  if (next != free_.end() && next->first == first + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin())
    if (auto before = std::prev(next); before->first + before->second == first) {
      before->second += size;
      return;
    }
  free_[first] = size;
}

// Claims pages. Touching one that the host cannot give ends the process; asking for it does not.
bool SharedMemory::claim_pages(size_t end) {
  if (end <= claimed_) return true;
  end = std::min(rounded(end, page), bytes_);
  std::byte* first = begin(mine_) + claimed_;
  if (madvise(first, end - claimed_, populate_write) != 0) return false;
  claimed_ = end;
  return true;
}

std::shared_ptr<Allocator> shared_allocator(std::shared_ptr<SharedMemory> memory) {
  return std::make_shared<SharedAllocator>(std::move(memory));
}

}  // namespace triax::parallel
