#pragma once
#include <cstddef>
#include <cstdint>

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

}  // namespace triax::parallel
