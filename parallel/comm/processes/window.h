#pragma once
#include <atomic>

#include "triax/parallel/comm/processes/operation_queue.h"
#include "triax/parallel/comm/processes/shared_memory.h"

// Collectives among the processes of one host, through memory that all of them see. No MPI here.
namespace triax::parallel {

/// A group's state in shared memory. Every counter has one writer, but those of a slot's work.
struct WindowControl {
  static constexpr int slots = 32;  ///< collectives announced and not yet finished by all
  static constexpr int max_ranks = 256;

  /// The progress of one rank.
  struct alignas(64) Progress {
    std::atomic<int64_t> announced;               ///< collectives
    std::atomic<int64_t> finished;                ///< collectives
    std::atomic<int64_t> staged, reduced, taken;  ///< rounds through the staging buffers
    SharedMemory::Address stage;
    /// By slot: the next of this rank's share of the pieces of a collective done in place. Its
    /// owner takes pieces first, others when they have nothing else to do.
    std::atomic<int64_t> next[slots];
  };
  struct Announcement {
    PackedCall call;
    bool direct;  ///< its tensors lie in shared memory
    SharedMemory::Address from, to;
  };
  /// By slot: the number of finished pieces.
  struct alignas(64) Work {
    std::atomic<int64_t> done;
  };

  Progress* progress(int rank);
  Announcement& announcement(int64_t number, int rank);
  Work& work(int64_t number);
  static size_t bytes(int ranks);
  int ranks;
};

/// One rank's view of a group on one host.
class WindowGroup : Immovable {
 public:
  /// The bytes of one of the two staging buffers of a rank.
  static constexpr size_t stage_bytes = size_t{1} << 19;

  /// `control` is zeroed memory of WindowControl::bytes(), seen by all; before anybody calls, every
  /// rank must have made its WindowGroup. Allocates a stage in `memory`; see `usable()`.
  WindowGroup(std::shared_ptr<SharedMemory> memory, WindowControl* control, Group group);
  ~WindowGroup();
  bool usable() const { return stage_ != nullptr; }

  std::shared_ptr<QueuedOperation> operation(std::shared_ptr<OperationQueue> queue, Transfer t);

 private:
  friend class WindowOperation;
  using Counter = std::atomic<int64_t> WindowControl::Progress::*;
  bool all_reached(Counter counter, int64_t value) const;
  std::byte* stage(int rank, int64_t round) const;

  std::shared_ptr<SharedMemory> memory_;
  WindowControl* control_;
  Group group_;
  void* stage_;
  int64_t calls_ = 0;
  int64_t rounds_ = 0;  // through the staging buffers, of finished collectives
};

}  // namespace triax::parallel
