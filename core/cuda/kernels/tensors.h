#pragma once
#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/kernels/elementwise.h"

// Helpers for the host's side of kernels.

namespace triax::cuda::TRIAX_TARGET {

/// The stream on which a kernel is queued, and the source of its scratch memory.
struct Queue {
  Stream stream;
  std::shared_ptr<Allocator> memory;
};

/// The size of the last dim and of all others together.
struct Rows {
  int64_t rows, width;
};
inline Rows rows_of(const Tensor& x) {
  int64_t width = x.rank() ? x.size(-1) : 1;
  return {width ? x.numel() / width : 0, width};
}

/// Launches a kernel that walks [0, n) with map() in packs of `size`; nothing if n is 0.
template <class K> void launch_map(Stream stream, int64_t n, int size, const K& kernel) {
  if (n > 0) launch(stream, {map_blocks(n, size, K::threads)}, kernel);
}

/// Launches body(offsets) for every element of `strides`.
template <class Body, int N>
void launch_each(Stream stream, const Strides<N>& strides, const Body& body) {
  launch_map(stream, strides.numel, 1, EachElement<Body, N>{strides, body});
}

/// Returns the operands of an elementwise kernel that makes elements T of elements In.
template <class T, class... In, class F, class... X>
Operands<F, T, In...> operands(const F& f, const Tensor& y, const X&... x) {
  static_assert(sizeof...(In) == sizeof...(X));
  return {f, {values<void>(y), values<void>(x)...}};
}
/// Launches over all elements of y; everything is contiguous.
template <class O> void launch_run(Stream stream, const Tensor& y, const O& o) {
  launch_map(stream, y.numel(), O::pack, ElementwiseRun<O>{o, y.numel()});
}
/// Launches with any strides.
template <class O> void launch_strided(Stream stream, const Strides<O::count>& s, const O& o) {
  if (s.contiguous()) launch_map(stream, s.numel, O::pack, ElementwiseRun<O>{o, s.numel});
  else launch_each(stream, s, ElementwiseOne<O>{o});
}
/// Launches with any strides, in packs where inputs are rows or are repeated along them.
template <class O> void launch_broadcast(Stream stream, const Strides<O::count>& s, const O& o) {
  bool fit = !s.contiguous() && s.packs(O::pack);
  for (void* at : o.at) fit = fit && packs_fit(at);
  if (!fit) return launch_strided(stream, s, o);
  ElementwisePack<O> body{o, {}};
  for (int k = 0; k < O::count; ++k) body.repeats[k] = s.step(k) == 0;
  launch_each(stream, s.in_packs(O::pack), body);
}

/// Working memory of a kernel, from the calling thread's cache of blocks; not initialised.
template <class T> class Scratch : Immovable {
 public:
  Scratch(std::shared_ptr<Allocator> from, int64_t n)
      : from_(std::move(from)),
        bytes_(size_t(n) * sizeof(T)),
        data_(bytes_ ? static_cast<T*>(from_->allocate(bytes_)) : nullptr) {}
  ~Scratch() {
    if (data_) from_->deallocate(data_, bytes_);
  }
  T* data() const { return data_; }

 private:
  std::shared_ptr<Allocator> from_;
  size_t bytes_;
  T* data_;
};

}  // namespace triax::cuda::TRIAX_TARGET
