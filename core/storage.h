#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"
#include "core/memory.h"

namespace triax {

/// Where bytes come from: the CPU's or a GPU's cache of blocks, or a communicator's shared arena.
/// Safe to call from any thread.
class Allocator {
 public:
  virtual ~Allocator();
  /// At least 64-byte aligned, not initialised. Throws Error 71 when there is no memory left.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* data, size_t bytes) noexcept = 0;
};

/// What the bytes of a storage are held for.
enum class Access { read, write };

/// Bytes with an identity: they can go away and come back while tensors that view them live on.
class Storage {
 public:
  Storage(size_t bytes, Device device, std::shared_ptr<Allocator> allocator);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool present() const { return present_; }
  /// Throws while released.
  void* data() const;

  /// Give the bytes back, keep the identity. Nothing if they are not there.
  void release();
  /// Fresh bytes, not initialised. Nothing if they are there.
  void restore();
  /// Move the bytes to a new storage; this one is released.
  std::shared_ptr<Storage> take();
  /// The reverse: the bytes of `other`, equally many, become those of this released storage, and
  /// `other` is released.
  void take_from(Storage& other);

  /// How often copy_, fill_ and collectives have written here: what an op has kept must not change.
  uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }
  void note_write() { writes_.fetch_add(1, std::memory_order_relaxed); }

  /// Bytes that are elsewhere between uses (optim/window.h) are here for as long as the handle that
  /// this returns lives; with `write` they are kept when they leave. Null for bytes that never
  /// leave by themselves. Throws what reading them throws.
  std::shared_ptr<void> hold(Access access) const { return hold_ ? hold_(access) : nullptr; }
  /// Say how to bring them; an empty function: they stay as they are.
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
