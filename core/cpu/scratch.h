#pragma once
#include "triax/core/cpu/base.h"

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// Working memory of a kernel, from the calling thread's cache of blocks; not initialised.
template <class T> class Scratch {
 public:
  explicit Scratch(int64_t n)
      : bytes_(size_t(n) * sizeof(T)), data_(static_cast<T*>(allocate_scratch(bytes_))) {}
  ~Scratch() { free_scratch(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  size_t bytes_;
  T* data_;
};

}  // namespace
}  // namespace triax::host
