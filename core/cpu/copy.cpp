#include "core/cpu/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/parallel.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// The last dim as the inner loop; the others counted through.
template <class To, class From> void copy_strided(const Tensor& from, const Tensor& to) {
  const From* x = static_cast<const From*>(from.data());
  To* y = static_cast<To*>(to.data());
  if (from.is_contiguous() && to.is_contiguous()) {
    parallel_for(to.numel(), grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = convert<To>(x[i]);
    });
    return;
  }
  int rank = to.rank();
  int64_t size[Shape::max_rank + 1] = {1}, sx[Shape::max_rank + 1] = {},
                                 sy[Shape::max_rank + 1] = {};
  for (int d = 0; d < rank; ++d) {
    size[d] = to.size(d);
    sx[d] = from.strides()[d];
    sy[d] = to.strides()[d];
  }
  int last = rank ? rank - 1 : 0;
  int64_t inner = size[last], outer = inner ? to.numel() / inner : 0;
  parallel_for(outer, grain / (inner + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      int64_t ax = 0, ay = 0, left = o;
      for (int d = last - 1; d >= 0; --d) {
        int64_t i = left % size[d];
        left /= size[d];
        ax += i * sx[d];
        ay += i * sy[d];
      }
      for (int64_t i = 0; i < inner; ++i) y[ay + i * sy[last]] = convert<To>(x[ax + i * sx[last]]);
    }
  });
}

template <class T> void fill_strided(const Tensor& x, double value) {
  T v = convert<T>(value), *first = static_cast<T*>(x.data());
  if (x.is_contiguous()) {
    parallel_for(x.numel(), grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) first[i] = v;
    });
    return;
  }
  for (int64_t o = 0; o < x.numel(); ++o) {
    int64_t at = 0, left = o;
    for (int d = x.rank() - 1; d >= 0; --d) {
      at += left % x.size(d) * x.strides()[d];
      left /= x.size(d);
    }
    first[at] = v;
  }
}

}  // namespace

void Cpu::copy(const Tensor& from, const Tensor& to) {
  visit(to.dtype(), [&]<class To>() {
    visit(from.dtype(), [&]<class From>() { copy_strided<To, From>(from, to); });
  });
}

void Cpu::fill(const Tensor& x, double value) {
  visit(x.dtype(), [&]<class T>() { fill_strided<T>(x, value); });
}

void Cpu::accumulate(const Tensor& from, const Tensor& to) {
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      using A = Accumulator<To>;
      const From* x = static_cast<const From*>(from.data());
      To* y = static_cast<To*>(to.data());
      parallel_for(to.numel(), grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          y[i] = convert<To>(convert<A>(y[i]) + convert<A>(x[i]));
      });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
