#pragma once
#include <type_traits>

#include "triax/core/cuda/runtime/thread.h"
#include "triax/core/numbers/half.h"

// Memory 16 bytes at a time, what a GPU's loads and stores are fastest at.

namespace triax::cuda::TRIAX_TARGET {

/// `n` neighbouring elements in registers: a multiple of 16 bytes, or 8 beside wider ones.
template <class T, int n = 16 / int(sizeof(T))>
struct alignas(n * sizeof(T) % 16 == 0 ? 16 : 8) Pack {
  static constexpr int size = n;
  static_assert(n * sizeof(T) % 16 == 0 || n * sizeof(T) == 8);
  T at[n];
};

/// True if packs may be read and written there.
template <class... T> TRIAX_HD bool packs_fit(const T*... address) {
  return ((reinterpret_cast<uintptr_t>(address) % 16 == 0) && ...);
}

/// Moves a pack; `to` and `from` must be multiples of its alignment (packs_fit).
template <class P> TRIAX_HD void move_pack(void* to, const void* from) {
#if defined(__CUDACC__)
  if constexpr (sizeof(P) == 8) {
    *static_cast<uint2*>(to) = *static_cast<const uint2*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < int(sizeof(P)) / 16; ++i)
      static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
  }
#else
  constexpr size_t step = sizeof(P) == 8 ? 8 : 16;  // what is checked for races
  for (size_t i = 0; i < sizeof(P); i += step)
    __builtin_memcpy(static_cast<char*>(to) + i, static_cast<const char*>(from) + i, step);
  emulation::require_aligned(to, alignof(P));
  emulation::require_aligned(from, alignof(P));
#endif
}
template <int n, class T> TRIAX_HD Pack<T, n> load_pack(const T* from) {
  Pack<T, n> p;
  move_pack<Pack<T, n>>(p.at, from);
  return p;
}
template <class T, int n> TRIAX_HD void store_pack(T* to, const Pack<T, n>& p) {
  move_pack<Pack<T, n>>(to, p.at);
}

/// Writes a pack to global memory, in stores that are named: of a plain one the compiler may make
/// four small ones.
template <class T, int n> TRIAX_HD void write_chunk(T* to, const Pack<T, n>& x) {
#if defined(__CUDA_ARCH__)
  using Part = std::conditional_t<sizeof(x) == 8, uint2, uint4>;
  struct Parts {
    Part at[sizeof(x) / sizeof(Part)];
  } parts = bit_cast<Parts>(x);
#pragma unroll
  for (size_t i = 0; i < sizeof(x) / sizeof(Part); ++i)
    __stwb(reinterpret_cast<Part*>(to) + i, parts.at[i]);
#else
  store_pack(to, x);
#endif
}

/// Prefetches the memory at `from`, which is read soon.
TRIAX_HD void prefetch([[maybe_unused]] const void* from) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.L2 [%0];" ::"l"(from));
#endif
}

template <class... T> TRIAX_HD constexpr int pack_size() {
  size_t smallest = 16;
  ((smallest = sizeof(T) < smallest ? sizeof(T) : smallest), ...);
  return int(16 / smallest);
}

/// to[i] = f(in[i]...) for i in [0, n), shared among all threads of the launch. `to` may be one of
/// the inputs.
template <class T, class F, class... In>
TRIAX_HD void map(const Thread& t, int64_t n, T* to, F f, const In*... in) {
  constexpr int size = pack_size<T, In...>();
  int64_t packs = packs_fit(to, in...) ? n / size : 0;
  for (int64_t p = t.global(); p < packs; p += t.globals()) {
    Pack<T, size> out;
    auto apply = [&](const auto&... pack) {
#pragma unroll
      for (int k = 0; k < size; ++k) out.at[k] = f(pack.at[k]...);
    };
    apply(load_pack<size>(in + p * size)...);
    store_pack(to + p * size, out);
  }
#pragma unroll 1
  for (int64_t i = packs * size + t.global(); i < n; i += t.globals()) to[i] = f(in[i]...);
}

/// Returns the blocks of `threads` that have about 4 packs of `size` elements for each thread.
TRIAX_HD int64_t map_blocks(int64_t n, int size, int threads) {
  int64_t each = int64_t{4} * size * threads;
  return (n + each - 1) / each;
}

}  // namespace triax::cuda::TRIAX_TARGET
