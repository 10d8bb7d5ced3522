#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Finds threads of a block that touch the same byte of shared memory, one of them writing, with no
/// sync() between them (of a warp: no sync_warp()). A shuffle orders no memory. That a kernel has
/// equal bits in three orders of threads does not show it: where both write the same, or where the
/// orders tried never meet the one that matters.
namespace triax::cuda::emulation {

class Races {
 public:
  /// Accesses are those of thread `*current`, of a block whose shared memory is [at, at + bytes).
  void begin_block(const void* at, size_t bytes, const int* current);
  void block_met() { ++epoch_; }
  void warp_met(int warp) { ++warps_[warp]; }
  /// Of the calling thread's block; nothing unless it is in shared memory.
  void touch(const void* at, size_t bytes, bool writes);
  /// The first that was found, as a sentence; empty if there is none.
  const std::string& found() const { return found_; }

 private:
  /// A thread, and how often its block and its warp had met; 0: nobody, or in an earlier block.
  struct Touch {
    uint32_t epoch = 0;
    uint16_t warp_met = 0, thread = 0;
  };
  struct Byte {
    Touch write, reads[2];  // of many readers two, of different threads
  };
  Touch now() const;
  bool together(const Touch& before, const Touch& after) const;
  void compare(size_t byte, const Touch& before, bool wrote, bool writes);

  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  const int* current_ = nullptr;
  uint32_t epoch_ = 0;  // never as it was, also in the next block
  uint16_t warps_[32] = {};
  std::vector<Byte> shadow_;
  std::string found_;
};

/// Those of the kernel that runs on this thread; null if there is none.
extern thread_local constinit Races* races;

/// Were kernels compiled to call touch()? Not by clang, and not if a sanitizer is on.
bool finds_races();

}  // namespace triax::cuda::emulation
