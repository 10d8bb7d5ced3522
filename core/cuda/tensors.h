#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/cuda.h"
#include "core/cuda/pack.h"
#include "core/cuda/strides.h"

// Helpers for the host's side of kernels.

namespace triax::cuda::TRIAX_TARGET {

/// The first element, or null if `x` is undefined.
template <class T> T* values(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data()) : nullptr;
}

/// Sizes of the last dim and of all others together.
struct Rows {
  int64_t rows, width;
};
inline Rows rows_of(const Tensor& x) {
  int64_t width = x.rank() ? x.size(-1) : 1;
  return {width ? x.numel() / width : 0, width};
}

/// Launch a kernel that walks [0, n) with map() in packs of `size`. Nothing if n is 0.
template <class K> void launch_map(Stream stream, int64_t n, int size, const K& kernel) {
  if (n > 0) launch(stream, {map_blocks(n, size, K::threads)}, kernel);
}

/// body(offsets) for every element of `strides`.
template <class Body, int N>
void launch_each(Stream stream, const Strides<N>& strides, const Body& body) {
  launch_map(stream, strides.numel, 1, EachElement<Body, N>{strides, body});
}

/// A kernel's own memory, of the calling thread's cache of blocks; not initialised.
template <class T> class Scratch {
 public:
  Scratch(std::shared_ptr<Allocator> from, int64_t n)
      : from_(std::move(from)),
        bytes_(size_t(n) * sizeof(T)),
        data_(bytes_ ? static_cast<T*>(from_->allocate(bytes_)) : nullptr) {}
  ~Scratch() {
    if (data_) from_->deallocate(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  std::shared_ptr<Allocator> from_;
  size_t bytes_;
  T* data_;
};

}  // namespace triax::cuda::TRIAX_TARGET
