#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "triax/core/error.h"
#include "triax/core/scoped.h"

namespace triax::optim {

/// A file for one rank's optimizer state (Rajbhandari et al., "ZeRO-Infinity", 2021, section 5),
/// read and written by a thread of its own, in the order of the calls, while the caller computes.
/// It has no name, so that nothing stays behind however the program ends, and all its bytes are
/// reserved at its beginning, so that a full disk shows at once (unless the file system cannot
/// reserve). It bypasses the page cache, which is memory too, where the file system allows that.
/// Errors are `offload: ...` with the directory: those of check_offload_directory(), 73 also where
/// there is no room, then or while it is written; wait() throws 74 when a transfer fails otherwise
/// or the file is shorter than it was.
class StateFile : Immovable {
 public:
  /// The alignment of offsets, lengths and addresses, in bytes.
  static constexpr size_t block = 4096;

  StateFile(std::string directory, uint64_t bytes);
  /// Waits for all transfers in flight.
  ~StateFile();

  const std::string& directory() const { return directory_; }

  /// Starts to move bytes; the memory must stay until wait(ticket) has returned or this is gone.
  uint64_t read(uint64_t offset, void* to, size_t bytes);
  uint64_t write(uint64_t offset, const void* from, size_t bytes);
  /// Returns when that transfer has ended; throws the first failure of any so far, every time.
  void wait(uint64_t ticket);

 private:
  struct Transfer {
    enum class Kind { read, write } kind;
    uint64_t offset;
    std::byte* data;
    size_t bytes;
  };
  uint64_t start(const Transfer& t);
  void serve();
  std::optional<Error> run(Transfer t) const;
  Error failed(const Transfer& t, int error) const;

  std::string directory_;
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  } file_;
  std::mutex lock_;  // guards what stands below
  std::condition_variable changed_;
  std::deque<Transfer> waiting_;
  uint64_t started_ = 0, ended_ = 0;  // tickets
  bool closing_ = false;
  std::optional<Error> failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace triax::optim
