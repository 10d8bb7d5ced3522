#pragma once
#include <type_traits>
#include <utility>

#include "triax/core/cuda/kernels/convert.h"
#include "triax/core/cuda/kernels/pack.h"
#include "triax/core/shared/strides.h"

// Kernels that make y[i] = f(x[i]...) of any function object f and inputs of types In: over one run
// of neighbours, packs of rows, or single elements.

namespace triax::cuda::TRIAX_TARGET {

/// A function and the addresses of its result and inputs.
template <class F, class T, class... In> struct Operands {
  static constexpr int count = 1 + int(sizeof...(In)), pack = pack_size<T, In...>();
  /// True if f also takes, first, the old value of y. In a run only.
  static constexpr bool updates = std::is_invocable_v<F, T, In...>;
  F f;
  void* at[count];

  TRIAX_HD T* y() const { return static_cast<T*>(at[0]); }
  /// Returns use(read(x, k)...) for every input x and its number k, from 1.
  template <class Read, class Use> TRIAX_HD auto apply(Read read, Use use) const {
    return [&]<size_t... k>(std::index_sequence<k...>) {
      return use(read(static_cast<const In*>(at[1 + k]), 1 + k)...);
    }
    (std::index_sequence_for<In...>{});
  }
};

/// Computes `n` neighbours.
template <class O> struct ElementwiseRun {
  static constexpr int threads = 256;
  O o;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    auto run = [&](auto*... x) {
      if constexpr (O::updates) map(t, n, o.y(), o.f, o.y(), x...);
      else map(t, n, o.y(), o.f, x...);
    };
    o.apply([](auto* x, size_t) { return x; }, run);
  }
};

/// Calls body(offsets) for every element, shared among the threads of the launch.
template <class Body, int N> struct EachElement {
  static constexpr int threads = 256;
  Strides<N> strides;
  Body body;

  TRIAX_HD void operator()(const Thread& t) const {
#pragma unroll 1
    for (int64_t i = t.global(); i < strides.numel; i += t.globals()) {
      int64_t at[N];
      strides.at(i, at);
      body(at);
    }
  }
};

/// Computes one element, at these offsets.
template <class O> struct ElementwiseOne {
  O o;

  TRIAX_HD void operator()(const int64_t (&at)[O::count]) const {
    o.y()[at[0]] = o.apply([&](auto* x, size_t k) { return x[at[k]]; }, o.f);
  }
};

/// Returns `size` neighbours, or the first one repeated.
template <int size, class T> TRIAX_HD Pack<T, size> pack_or_repeat(const T* from, bool repeats) {
  if (!repeats) return load_pack<size>(from);
  Pack<T, size> p;
  T first = *from;
#pragma unroll
  for (int k = 0; k < size; ++k) p.at[k] = first;
  return p;
}

/// Computes a pack of rows whose inputs may be rows, or one element per row or of all.
template <class O> struct ElementwisePack {
  O o;
  bool repeats[O::count];

  TRIAX_HD void operator()(const int64_t (&at)[O::count]) const {
    auto read = [&](auto* x, size_t k) { return pack_or_repeat<O::pack>(x + at[k], repeats[k]); };
    o.apply(read, [&](const auto&... in) {
      Pack<std::remove_pointer_t<decltype(o.y())>, O::pack> out;
#pragma unroll
      for (int i = 0; i < O::pack; ++i) out.at[i] = o.f(in.at[i]...);
      store_pack(o.y() + at[0], out);
    });
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
