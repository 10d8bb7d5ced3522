#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/storage.h"

namespace triax::cuda {

/// Where a pool's blocks come from, and the queue of work that uses them.
class BlockSource {
 public:
  virtual ~BlockSource();
  /// At least 256-byte aligned; null where no memory is left.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* data) noexcept = 0;
  /// May blocks be freed now?
  virtual bool may_free() const { return true; }
  /// Stands behind what the calling thread has queued so far; null if that is the pool's own queue.
  virtual std::shared_ptr<void> mark() noexcept = 0;
  /// The pool's own queue goes on only after `mark`.
  virtual void wait_for(const std::shared_ptr<void>& mark) = 0;
  /// May a block behind `mark` be handed out? Where waiting would stop the host: only once reached;
  /// not where the pool's own queue cannot wait.
  virtual bool ready(const std::shared_ptr<void>&) const { return true; }
  /// Whose memory this is, for messages.
  virtual const char* where() const = 0;
};

/// A rank's cache of device memory, ordered on its stream: a block given back is handed out again
/// without waiting, because what uses it next is queued behind what used it last (or, of the host's
/// memory, once the work that used it is done). A steady step asks for the sizes of the step before
/// and allocates nothing. Safe to call from any thread; allocate() is the owner's, who queues the
/// work.
class Pool final : public Allocator, public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(std::unique_ptr<BlockSource> source);
  ~Pool() override;
  /// 256-byte aligned. Throws Error 71, with who holds what, when there is no memory left even
  /// after the unused blocks were given up.
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  /// Give up all blocks that nobody uses.
  void trim();
  /// Takes the blocks that nobody uses out of the pool for as long as the handle lives: a graph
  /// goes on writing to those that were used when it was captured.
  std::shared_ptr<void> set_aside();
  /// Bytes of blocks that nobody uses.
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
