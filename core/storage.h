#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "triax/core/device.h"
#include "triax/core/memory.h"

namespace triax {

/// The source of bytes: the CPU's or a GPU's cache of blocks, or a communicator's shared arena.
/// Safe to call from any thread.
class Allocator {
 public:
  virtual ~Allocator();
  /// Returns bytes, 64-byte aligned or more, not initialised. Throws Error 71 if memory ran out.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* data, size_t bytes) noexcept = 0;
};

/// The purpose for which the bytes of a storage are held.
enum class Access { read, write };

/// Bytes with an identity: they can go away and come back while tensors that view them live on.
class Storage : Immovable {
 public:
  Storage(size_t bytes, Device device, std::shared_ptr<Allocator> allocator);
  ~Storage();

  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool present() const { return present_; }
  /// Returns the address of the bytes; throws while released.
  void* data() const;

  /// Frees the bytes and keeps the identity. Does nothing if they are not there.
  void release();
  /// Allocates fresh bytes, not initialised. Does nothing if they are there.
  void restore();
  /// Moves the bytes to a new storage; this one is released.
  std::shared_ptr<Storage> take();
  /// Makes the bytes of `other`, equally many, those of this storage, which is released; `other` is
  /// released.
  void take_from(Storage& other);

  /// Counts the writes by copy_, fill_ and collectives: what an op has kept must not change.
  uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }
  void note_write() { writes_.fetch_add(1, std::memory_order_relaxed); }

  /// Pins bytes that are elsewhere between uses (optim/window.h) in memory while the returned
  /// handle lives; with `write` they are saved when they leave. Returns null for bytes that never
  /// leave by themselves. Throws what reading them throws.
  std::shared_ptr<void> hold(Access access) const { return hold_ ? hold_(access) : nullptr; }
  /// Sets the function that brings them; an empty one: they stay as they are.
  void set_hold(std::function<std::shared_ptr<void>(Access)> hold) { hold_ = std::move(hold); }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  Device device_;
  bool present_ = false;
  std::atomic<uint64_t> writes_ = 0;  // views of one storage may be written by several threads
  memory::Kind kind_;
  std::shared_ptr<Allocator> allocator_;
  std::function<std::shared_ptr<void>(Access)> hold_;
  std::shared_ptr<memory::Counter> counter_;
};

}  // namespace triax
