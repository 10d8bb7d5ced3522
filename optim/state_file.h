#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "optim/transfers.h"

namespace triax::optim {

/// Throws unless new files can be made in `directory`: Error 66 if there is none, 73 if it is no
/// directory or cannot be written.
void check_offload_directory(const std::string& directory);

struct StateFileOptions {
  std::string directory;
  uint64_t bytes;
  unsigned most = 8;  ///< transfers under way at once
  /// `fastest`: io_uring where the kernel allows it, else a thread.
  enum class Engine { fastest, uring, thread } engine = Engine::fastest;
};

/// A file for one rank's optimizer state (Rajbhandari et al., "ZeRO-Infinity", 2021, section 5),
/// read and written beside the thread that uses it. It has no name, so that nothing stays behind
/// however the program ends, and all its bytes are reserved at its beginning, so that a full disk
/// shows at once (unless the file system cannot reserve). It goes past the page cache, which is
/// memory too, where the file system allows that. Errors are `offload: ...` with the directory: 66
/// and 73 as above, 73 also where there is no room, then or while it is written; wait() throws 74
/// when a transfer fails otherwise or the file is shorter than it was.
class StateFile {
 public:
  /// Offsets, lengths and addresses are multiples of it.
  static constexpr size_t block = 4096;

  explicit StateFile(const StateFileOptions& options);
  /// Waits for all that is under way.
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  const std::string& directory() const { return directory_; }

  /// Begin to move bytes; the memory must stay until wait(ticket) has returned or this is gone.
  uint64_t read(uint64_t offset, void* to, size_t bytes);
  uint64_t write(uint64_t offset, const void* from, size_t bytes);
  /// Returns when that transfer has ended; throws the first failure of any so far, every time.
  void wait(uint64_t ticket);

 private:
  uint64_t start(const Transfer& t);
  void finish_one();
  void fail_first(Transfer::Kind kind, int error, uint64_t at);

  std::string directory_;
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  } file_;
  std::unique_ptr<Transfers> transfers_;
  std::unordered_map<uint64_t, Transfer> under_way_;  // what is left of each, by ticket
  uint64_t last_ = 0;
  struct Failure {
    int code;
    std::string text;
  };
  std::unique_ptr<Failure> failure_;
};

}  // namespace triax::optim
