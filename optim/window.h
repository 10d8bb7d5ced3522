#pragma once
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "triax/core/storage.h"
#include "triax/optim/offload.h"
#include "triax/optim/state_file.h"

namespace triax::optim {

/// Records, such as optimizer state, that lie in a file and of which a few are in memory at a time,
/// counted as `buffers`; the file's bytes count as `offloaded`. A record is a storage: released
/// while it is out. On the meta device there is no file, all else is the same. For one thread.
/// Throws StateFile's errors; a write that fails shows at a later hold. Each record ends with a
/// number of its own, so that zeros in place of lost bytes are noticed: Error 74.
class Window {
 public:
  /// `sizes`: bytes of each record. Its values are undefined until it was first held to write.
  Window(const Offload& offload, Device device, const std::vector<size_t>& sizes);
  /// Waits for all transfers in flight. Records that are out stay out.
  ~Window();

  const std::shared_ptr<Storage>& storage(size_t i) const { return records_[i].storage; }

  /// Keeps record i in memory while the handle lives, which the window must outlive;
  /// storage(i)->hold() does the same. Throws Error 70 if the window is full of records that are
  /// held.
  std::shared_ptr<void> hold(size_t i, Access access);
  /// Holds record i to write all of it: its old contents are not read.
  std::shared_ptr<void> overwrite(size_t i);
  /// Holds record i to write, for repeated passes over all records in order: starts to read those
  /// that follow, and to write this one when the handle goes.
  std::shared_ptr<void> pass(size_t i);

 private:
  struct Record {
    std::shared_ptr<Storage> storage;
    uint64_t offset = 0;
    uint64_t stamp = 0;    // its last eight bytes in the file; 0: was never written
    bool changed = false;  // memory has other values than the file
    int holders = 0;
    std::optional<uint64_t> ticket;  // of the transfer in flight
  };
  enum class Contents { read, undefined };
  void bring(size_t i, Contents contents);
  std::shared_ptr<void> handle(Record& r, Access access);
  void make_room();
  void write(Record& r);
  void settle(Record& r);
  char* stamp_of(const Record& r) const;

  std::vector<Record> records_;
  std::deque<size_t> inside_;  // those in memory, the one used longest ago first
  size_t most_;
  int64_t bytes_ = 0;
  uint64_t writes_ = 0;
  std::exception_ptr failure_;  // of a write that nobody waited for
  std::shared_ptr<memory::Counter> counter_;
  std::unique_ptr<StateFile> file_;  // last: it waits, then records may go
};

}  // namespace triax::optim
