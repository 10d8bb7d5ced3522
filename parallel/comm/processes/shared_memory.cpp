#include "triax/parallel/comm/processes/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "triax/core/backend.h"

namespace triax::parallel {
namespace {

constexpr size_t page = size_t{1} << 21;  // a huge page; claimed in steps of this
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

Segment::Segment(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  if (descriptor_ < 0) return;
  // Huge pages need an aligned address: asked for within room that was free a moment ago.
  void* room = ::mmap(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return;
  ::munmap(room, bytes + page);
  auto* aligned = reinterpret_cast<void*>(rounded(reinterpret_cast<uintptr_t>(room), page));
  void* data =
      ::mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (data == MAP_FAILED) return;
  ::madvise(data, bytes, MADV_HUGEPAGE);  // only advice
  data_ = static_cast<std::byte*>(data);
}

Segment::Segment(Segment&& o) noexcept
    : descriptor_(std::exchange(o.descriptor_, -1)),
      bytes_(o.bytes_),
      data_(std::exchange(o.data_, nullptr)) {}

Segment::~Segment() {
  close();
  if (data_) ::munmap(data_, bytes_);
}

Segment Segment::create(size_t bytes) {
  int descriptor = ::memfd_create("triax", MFD_CLOEXEC);
  if (descriptor >= 0 && ::ftruncate(descriptor, off_t(bytes)) != 0) {
    ::close(descriptor);
    descriptor = -1;
  }
  return {descriptor, bytes};
}

Segment Segment::open(const Handle& handle, size_t bytes) {
  // The kernel lets only processes of the same user follow these links.
  std::string path =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.descriptor);
  Segment other(::open(path.c_str(), O_RDWR | O_CLOEXEC), bytes);
  Handle found = other.handle();
  bool same = other.usable() && found.device == handle.device && found.inode == handle.inode;
  return same ? std::move(other) : Segment();
}

Segment::Handle Segment::handle() const {
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) return {};
  return {::getpid(), descriptor_, status.st_dev, status.st_ino};
}

void Segment::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

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
