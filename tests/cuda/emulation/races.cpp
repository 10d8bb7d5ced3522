#include "tests/cuda/emulation/races.h"

#include <fmt/core.h>

#include <algorithm>

namespace {

bool instrumented = false;  // set by what the compiler puts into an instrumented file

}  // namespace

namespace triax::cuda::emulation {

thread_local constinit Races* races = nullptr;

bool finds_races() { return instrumented; }

void Races::begin_block(const void* at, size_t bytes, const int* current) {
  begin_ = reinterpret_cast<uintptr_t>(at);
  bytes_ = bytes;
  current_ = current;
  if (shadow_.size() < bytes) shadow_.resize(bytes);
  block_met();
}

Races::Touch Races::now() const { return {epoch_, warps_[*current_ / 32], uint16_t(*current_)}; }

// Neither before the other: the block has not met between them, nor the warp of both.
bool Races::together(const Touch& before, const Touch& after) const {
  return before.epoch == after.epoch && before.thread != after.thread &&
         (before.thread / 32 != after.thread / 32 || before.warp_met == after.warp_met);
}

void Races::compare(size_t byte, const Touch& before, bool wrote, bool writes) {
  if (!together(before, now()) || !found_.empty()) return;
  bool one_warp = before.thread / 32 == now().thread / 32;
  found_ = fmt::format(
      "cuda emulation: thread {} {} byte {} of shared memory and thread {} {} it; expected a {} "
      "between them",
      before.thread, wrote ? "writes" : "reads", byte, now().thread, writes ? "writes" : "reads",
      one_warp ? "sync() or sync_warp()" : "sync()");
}

void Races::touch(const void* at, size_t bytes, bool writes) {
  size_t first = reinterpret_cast<uintptr_t>(at) - begin_;
  if (first >= bytes_) return;
  for (size_t i = first; i < std::min(first + bytes, bytes_); ++i) {
    Byte& b = shadow_[i];
    compare(i, b.write, true, writes);
    if (writes) {
      for (const Touch& read : b.reads) compare(i, read, false, writes);
      b.write = now();
    } else {
      bool into_first = b.reads[0].epoch != epoch_ || b.reads[0].thread == *current_;
      b.reads[into_first ? 0 : 1] = now();
    }
  }
}

}  // namespace triax::cuda::emulation

// The compiler puts these before every access to memory that is not a local variable's, with
// -fsanitize=thread; ThreadSanitizer itself, which knows nothing of fibers, is not linked.
namespace {

inline void touch(const void* at, size_t bytes, bool writes) {
  if (auto* races = triax::cuda::emulation::races) races->touch(at, bytes, writes);
}

}  // namespace

extern "C" {
void __tsan_init() { instrumented = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read1(const void* at) { touch(at, 1, false); }
void __tsan_read2(const void* at) { touch(at, 2, false); }
void __tsan_read4(const void* at) { touch(at, 4, false); }
void __tsan_read8(const void* at) { touch(at, 8, false); }
void __tsan_read16(const void* at) { touch(at, 16, false); }
void __tsan_unaligned_read2(const void* at) { touch(at, 2, false); }
void __tsan_unaligned_read4(const void* at) { touch(at, 4, false); }
void __tsan_unaligned_read8(const void* at) { touch(at, 8, false); }
void __tsan_unaligned_read16(const void* at) { touch(at, 16, false); }
void __tsan_read_range(const void* at, size_t bytes) { touch(at, bytes, false); }
void __tsan_write1(void* at) { touch(at, 1, true); }
void __tsan_write2(void* at) { touch(at, 2, true); }
void __tsan_write4(void* at) { touch(at, 4, true); }
void __tsan_write8(void* at) { touch(at, 8, true); }
void __tsan_write16(void* at) { touch(at, 16, true); }
void __tsan_unaligned_write2(void* at) { touch(at, 2, true); }
void __tsan_unaligned_write4(void* at) { touch(at, 4, true); }
void __tsan_unaligned_write8(void* at) { touch(at, 8, true); }
void __tsan_unaligned_write16(void* at) { touch(at, 16, true); }
void __tsan_write_range(void* at, size_t bytes) { touch(at, bytes, true); }
// What the standard library counts references with.
int __tsan_atomic32_fetch_add(volatile int* at, int by, int) {
  return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST);
}
}
