#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "triax/core/storage.h"

namespace triax::parallel {

/// Memory that processes of one user on one host share. It has no name in any file system: nobody
/// else can open it, and it is gone when the last process that maps it has ended, however it did.
class Segment {
 public:
  /// The address by which another process finds it, while the one that made it still runs.
  struct Handle {
    int64_t process = 0;
    int64_t descriptor = -1;
    uint64_t device = 0, inode = 0;  ///< so that no other file is taken for it
  };

  Segment() = default;
  /// Makes a segment of zeros. Pages are taken from the host when they are first touched. Not
  /// `usable` if the system refuses.
  static Segment create(size_t bytes);
  /// Opens another process's; not `usable` if it cannot be reached, as from another container.
  static Segment open(const Handle& handle, size_t bytes);
  Segment(Segment&& o) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  bool usable() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Handle handle() const;
  /// Closes the segment to further processes.
  void close();

 private:
  Segment(int descriptor, size_t bytes);
  int descriptor_ = -1;
  size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

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
