#include "triax/parallel/comm/movement.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace triax::parallel {
namespace {

// Integers are summed without sign, where overflow is defined; halves in f32.
template <class T> struct WideOf { using type = std::make_unsigned_t<T>; };
template <> struct WideOf<float> { using type = float; };
template <> struct WideOf<double> { using type = double; };
template <> struct WideOf<Half> { using type = float; };
template <> struct WideOf<BFloat16> { using type = float; };

// True if a is less; comparisons need the sign back.
template <class T, class W> TRIAX_HD bool less(W a, W b) {
  if constexpr (std::is_integral_v<T>) return T(a) < T(b);
  else return a < b;
}

template <ReduceOp op, class T, class W> TRIAX_HD W join(W a, W b) {
  if constexpr (op == ReduceOp::sum) return W(a + b);
  else if constexpr (op == ReduceOp::max) return less<T>(a, b) || b != b ? b : a;
  else return less<T>(b, a) || b != b ? b : a;
}

/// Reduces two sources to up to two destinations, as two ranks need, in one pass. Destinations may
/// be sources element by element, hence the promise to the compiler.
template <ReduceOp op, class T>
[[gnu::always_inline]] inline void reduce_two(const T* a, const T* b, T* y, T* z, int64_t count) {
  using W = typename WideOf<T>::type;
  if (z) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = z[i] = T(join<op, T>(W(a[i]), W(b[i])));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = T(join<op, T>(W(a[i]), W(b[i])));
  }
}

// The elements of a block, small enough to stay in the first cache while every source is added.
constexpr int64_t block = 1024;

using Sources = std::span<const std::byte* const>;
using Destinations = std::span<std::byte* const>;

template <ReduceOp op, class T>
[[gnu::always_inline]] inline void reduce_typed(Sources from, Destinations to, int64_t count) {
  using W = typename WideOf<T>::type;
  if (from.size() == 2 && to.size() <= 2) {
    auto* first = reinterpret_cast<T*>(to.front());
    auto* second = reinterpret_cast<T*>(to.size() == 2 ? to.back() : nullptr);
    if (!first) std::swap(first, second);
    if (first)
      reduce_two<op, T>(reinterpret_cast<const T*>(from[0]), reinterpret_cast<const T*>(from[1]),
                        first, second, count);
    return;
  }
  alignas(64) W sum[block];
  alignas(64) T out[block];
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t n = std::min(block, count - begin);
    auto source = [&](size_t p) { return reinterpret_cast<const T*>(from[p]) + begin; };
    const T* a = source(0);
    const T* b = source(1);
    for (int64_t i = 0; i < n; ++i) sum[i] = join<op, T>(W(a[i]), W(b[i]));
    for (size_t p = 2; p < from.size(); ++p) {
      const T* c = source(p);
      for (int64_t i = 0; i < n; ++i) sum[i] = join<op, T>(sum[i], W(c[i]));
    }
    const void* result = sum;
    if constexpr (!std::is_same_v<T, W> && !std::is_integral_v<T>) {
      for (int64_t i = 0; i < n; ++i) out[i] = T(sum[i]);
      result = out;
    }
    for (std::byte* y : to)
      if (y) std::memcpy(y + size_t(begin) * sizeof(T), result, size_t(n) * sizeof(T));
  }
}

#ifdef __x86_64__
/// Sums to the same bits in vectors of 32 bytes: within caches the stores take the time.
template <class T>
__attribute__((target("avx2"))) void sum_avx2(Sources from, Destinations to, int64_t count) {
  reduce_typed<ReduceOp::sum, T>(from, to, count);
}
#endif

template <class T> void sum(Sources from, Destinations to, int64_t count) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return sum_avx2<T>(from, to, count);
#endif
  reduce_typed<ReduceOp::sum, T>(from, to, count);
}

using From = std::vector<const std::byte*>;
using To = std::vector<std::byte*>;

bool by_slices(Call::Kind kind) {
  return kind == Call::all_gather || kind == Call::split || kind == Call::reduce_scatter ||
         kind == Call::gather || kind == Call::scatter;
}

void copy(const std::byte* from, std::byte* to, size_t bytes) {
  if (to && from != to) std::memcpy(to, from, bytes);
}

/// A stretch within slice `slice`: its begin in `all`, and in the slice, which is that rank's
/// `mine`.
struct Stretch {
  int slice;
  size_t all, mine, bytes;
};

/// Moves a stretch of the slice that rank `slice / n` gets from rank `slice % n`.
void move_across(const Call& c, const RankBuffers& b, const Stretch& s) {
  int n = int(b.from.size()), sender = s.slice % n, receiver = s.slice / n;
  Slice slice = c.slice(n, sender, receiver);
  if (size_t bytes = slice.within(s.mine, s.bytes))
    copy(b.from[size_t(sender)] + slice.from + s.mine, b.to[size_t(receiver)] + slice.to + s.mine,
         bytes);
}

void move_stretch(const Call& c, const RankBuffers& b, const Stretch& s) {
  size_t n = b.from.size(), slice = size_t(s.slice), root = size_t(c.peer);
  auto sum = [&](size_t read, const To& to) {
    if (std::all_of(to.begin(), to.end(), [](auto* y) { return !y; })) return;
    From from(n);
    for (size_t p = 0; p < n; ++p) from[p] = b.from[p] + read;
    reduce(c.op, c.dtype, from, to, int64_t(s.bytes / size_of(c.dtype)));
  };
  auto shifted = [](std::byte* to, size_t by) { return to ? to + by : nullptr; };
  switch (c.kind) {
    case Call::all_reduce: {
      To to(n);
      for (size_t p = 0; p < n; ++p) to[p] = shifted(b.to[p], s.all);
      return sum(s.all, to);
    }
    case Call::reduce:
      return sum(s.all, {shifted(b.to[root], s.all)});
    case Call::reduce_scatter:
      return sum(s.all, {shifted(b.to[slice], s.mine)});
    case Call::all_gather:
    case Call::split:
      for (size_t p = 0; p < n; ++p) copy(b.from[slice] + s.mine, shifted(b.to[p], s.all), s.bytes);
      return;
    case Call::gather:
      return copy(b.from[slice] + s.mine, shifted(b.to[root], s.all), s.bytes);
    case Call::scatter:
      return copy(b.from[root] + s.all, shifted(b.to[slice], s.mine), s.bytes);
    case Call::all_to_all:
      return move_across(c, b, s);
    case Call::broadcast:
      for (size_t p = 0; p < n; ++p) copy(b.from[root] + s.all, shifted(b.to[p], s.all), s.bytes);
      return;
    case Call::send:  // the pair (sender, receiver) as a group of two
    case Call::recv:
      return copy(b.from[0] + s.all, shifted(b.to[1], s.all), s.bytes);
    case Call::barrier:
      return;
  }
}

}  // namespace

void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> from,
            std::span<std::byte* const> to, int64_t count) {
  visit(dtype, [&]<class T>() {
    switch (op) {
      case ReduceOp::sum:
        return sum<T>(from, to, count);
      case ReduceOp::max:
        return reduce_typed<ReduceOp::max, T>(from, to, count);
      case ReduceOp::min:
        return reduce_typed<ReduceOp::min, T>(from, to, count);
    }
  });
}

int64_t elements(const Call& call, int ranks) {
  if (call.kind == Call::all_to_all) return int64_t(ranks) * ranks * call.numel;
  return by_slices(call.kind) ? ranks * call.numel : call.numel;
}

void move(const Call& call, const RankBuffers& buffers, int64_t begin, int64_t end) {
  size_t size = size_of(call.dtype);
  while (begin < end) {
    bool sliced = by_slices(call.kind) || call.kind == Call::all_to_all;
    int64_t slice = sliced ? begin / call.numel : 0;
    int64_t first = slice * call.numel, count = std::min(end, first + call.numel) - begin;
    move_stretch(
        call, buffers,
        {int(slice), size_t(begin) * size, size_t(begin - first) * size, size_t(count) * size});
    begin += count;
  }
}

}  // namespace triax::parallel
