#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "triax/core/scoped.h"

namespace triax::memory {

/// The purpose of bytes. `activations` is the default: whatever a step makes and drops. `offloaded`
/// ones lie in the host's memory or in files by choice: the totals below leave them out.
enum Kind { activations, parameters, gradients, optimizer, buffers, offloaded };
inline constexpr int kinds = 6;
const char* name(Kind kind);

/// Bytes of tensor storage of one rank, live and at their highest. Safe to share between threads.
class Counter {
 public:
  void add(Kind kind, int64_t bytes);
  int64_t live(Kind kind) const { return live_[kind]; }
  int64_t peak(Kind kind) const { return peak_[kind]; }
  /// Returns the live bytes of all kinds but `offloaded`.
  int64_t live() const { return live_total_; }
  /// Returns the high-water mark of live() (not the sum of the kinds' peaks).
  int64_t peak() const { return peak_total_; }
  void reset_peaks();

 private:
  std::array<std::atomic<int64_t>, kinds> live_{}, peak_{};
  std::atomic<int64_t> live_total_ = 0, peak_total_ = 0;
};

/// Returns the counter of the calling rank. A rank is a thread, so this is per thread.
const std::shared_ptr<Counter>& counter();
/// Gives this thread a counter of its own (a new rank) or that of another thread.
void set_counter(std::shared_ptr<Counter> c);

/// While it lives, storage made on this thread is counted apart: it is no memory of the rank.
class OwnCounter : Scoped<std::shared_ptr<Counter>> {
 public:
  OwnCounter();
};

/// Storage made on this thread while a Scope lives is counted as `kind`.
class Scope : Scoped<Kind> {
 public:
  explicit Scope(Kind kind);
};
Kind current_kind();

}  // namespace triax::memory
