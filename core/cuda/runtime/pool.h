#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "triax/core/storage.h"

namespace triax::cuda {

/// The source of a pool's blocks, and the queue of work that uses them.
class BlockSource {
 public:
  virtual ~BlockSource();
  /// Returns memory, at least 256-byte aligned; null where none is left.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* data) noexcept = 0;
  /// True if blocks may be freed now.
  virtual bool may_free() const { return true; }
  /// Fills a free block with NaN, on the pool's queue, to show who still reads it on another.
  virtual void poison(void*, size_t) noexcept {}
  /// Returns a mark behind what this thread has queued; null if that is the pool's own queue.
  virtual std::shared_ptr<void> mark() noexcept = 0;
  /// Makes the pool's own queue wait for `mark`.
  virtual void wait_for(const std::shared_ptr<void>& mark) = 0;
  /// True if a block behind `mark` may be handed out: where waiting would stop the host, once it is
  /// reached; never where the pool's own queue cannot wait.
  virtual bool ready(const std::shared_ptr<void>&) const { return true; }
  /// Names the memory, for messages.
  virtual const char* where() const = 0;
};

/// A rank's cache of device memory, ordered on its stream: a block given back is handed out again
/// without waiting, because its next user is queued behind its last (or, in the host's memory, once
/// the work that used it is done). A steady step asks for the sizes of the step before and
/// allocates nothing. Safe to call from any thread; only the owner, who queues the work, calls
/// allocate().
class Pool final : public Allocator, public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(std::unique_ptr<BlockSource> source);
  ~Pool() override;
  /// Returns a 256-byte aligned block. Throws Error 71, listing who holds what, if there is no
  /// memory left even after unused blocks were freed.
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  /// Frees all blocks that nobody uses.
  void trim();
  /// Takes the blocks that nobody uses out of the pool while the handle lives: a graph goes on
  /// writing to those that were used when it was captured.
  std::shared_ptr<void> set_aside();
  /// Returns the bytes of blocks that nobody uses.
  size_t unused() const;

 private:
  struct Block {
    void* data;
    std::shared_ptr<void> after;  // a mark of another queue
  };
  bool take(size_t size, Block& block);

  std::unique_ptr<BlockSource> source_;
  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<Block>> free_;
  size_t unused_ = 0;
};

/// A block of a pool, given back when it dies.
struct GiveBack {
  std::shared_ptr<Pool> pool = {};
  size_t bytes = 0;
  void operator()(void* data) const noexcept { pool->deallocate(data, bytes); }
};
using Block = std::unique_ptr<void, GiveBack>;
inline Block borrow(const std::shared_ptr<Pool>& pool, size_t bytes) {
  return {pool->allocate(bytes), GiveBack{pool, bytes}};
}

}  // namespace triax::cuda
