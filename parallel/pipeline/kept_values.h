#pragma once
#include <future>

#include "triax/core/noted_storages.h"
#include "triax/core/tensor.h"

namespace triax::parallel {

/// Holds what a forward has kept for its backward: in device memory, in host memory, or on its way.
class KeptValues {
 public:
  KeptValues() = default;
  /// Begins to copy to host memory: on a CPU by a thread; on a GPU behind the work queued before.
  /// `made` lists the storages that the forward has made, or received for itself. Those that nobody
  /// holds any more are left out, and the result `y`: it may be under way, or a chunk's input.
  KeptValues(const StorageList& made, const Tensor& y);
  /// Waits for the copy and frees the device memory.
  void offload();
  /// Takes device memory and begins to copy back.
  void reload();
  /// Waits for what reload() began.
  void arrive();

 private:
  Tensors here_, host_;        // bytes
  std::future<void> copying_;  // ends first: its destructor waits for the copy
};

}  // namespace triax::parallel
