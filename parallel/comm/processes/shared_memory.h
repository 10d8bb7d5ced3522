#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/storage.h"
#include "parallel/comm/processes/segment.h"

namespace triax::parallel {

/// Memory that the ranks of one host share: one segment for each, mapped by all. Pages are taken
/// from the host when they are first handed out, so a large segment costs nothing by itself.
class SharedMemory {
 public:
  /// A position in it, the same for all ranks. segment < 0: not in it.
  struct Address {
    int32_t segment = -1;
    int64_t offset = 0;
  };

  /// `segments` by rank on this host, usable and equally large; `mine` is this rank's.
  SharedMemory(std::vector<Segment> segments, int mine);

  std::byte* at(Address a) const { return begin(a.segment) + a.offset; }
  Address find(const void* data) const;

  /// Returns 64-byte aligned bytes of this rank's segment; null if there is no room, or the host
  /// has no pages left.
  void* allocate(size_t bytes);
  void deallocate(void* data, size_t bytes) noexcept;

 private:
  std::byte* begin(int segment) const { return segments_[size_t(segment)].data(); }
  bool claim_pages(size_t end);
  std::vector<Segment> segments_;
  size_t bytes_;
  int mine_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // by offset: bytes
  size_t claimed_ = 0;
};

/// Returns an allocator of this rank's segment, or of the CPU's own memory where there is no room.
std::shared_ptr<Allocator> shared_allocator(std::shared_ptr<SharedMemory> memory);

}  // namespace triax::parallel
