#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace triax::optim {

/// Bytes to move between memory and a file.
struct Transfer {
  enum class Kind { read, write } kind;
  uint64_t offset;  ///< in the file
  std::byte* data;  ///< must stay valid until the transfer has ended
  size_t bytes;
};

/// Moves bytes of one open file beside the calling thread, in any order. One thread at a time.
class Transfers {
 public:
  struct End {
    uint64_t tag;
    int64_t result;  ///< bytes moved, perhaps fewer than asked for; an errno, negated
  };

  /// Nothing may be under way any more.
  virtual ~Transfers();
  /// Begin one, known as `tag`. At most as many at once as the constructor was told.
  virtual void start(const Transfer& t, uint64_t tag) = 0;
  /// Wait until one that was started ends.
  virtual End next() = 0;
};

/// Through io_uring (Axboe, "Efficient IO with io_uring", 2019). Null if this build has no liburing
/// or the kernel does not allow it.
std::unique_ptr<Transfers> uring_transfers(int descriptor, unsigned most);
/// Through a thread of its own, with pread and pwrite.
std::unique_ptr<Transfers> thread_transfers(int descriptor);

}  // namespace triax::optim
