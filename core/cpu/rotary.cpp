#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Turns one head: pair i is features i * step and i * step + other.
template <class T>
void turn(const T* x, const float* angles, T* y, int64_t half, Rotary::Pairs pairs, float sign) {
  bool halves = pairs == Rotary::Pairs::halves;
  int64_t step = halves ? 1 : 2, other = halves ? half : 1;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    Accumulator<T> c = angles[i], s = sign * angles[half + i];
    Accumulator<T> a = load(x[i * step]), b = load(x[i * step + other]);
    y[i * step] = convert<T>(a * c - b * s);
    y[i * step + other] = convert<T>(b * c + a * s);
  }
}

}  // namespace

void Cpu::rotary(const Rotary& r, const Tensor& y) {
  int64_t tokens = y.size(0), groups = y.size(1), heads = y.size(2), width = y.size(3);
  int64_t by_token = r.x.strides()[0], by_group = r.x.strides()[1], by_head = r.x.strides()[2];
  int64_t time = r.time;
  auto pairs = r.pairs;
  float sign = r.turn == Rotary::Turn::forth ? 1 : -1;
  const float* table = values<float>(r.table);
  visit_float(y.dtype(), [&]<class T>() {
    const T* from = values<T>(r.x);
    T* to = values<T>(y);
    parallel_each(tokens, 4096 / (groups * heads * width + 1) + 1, [=](int64_t t) {
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t h = 0; h < heads; ++h)
          turn(from + t * by_token + g * by_group + h * by_head, table + t % time * width,
               to + ((t * groups + g) * heads + h) * width, width / 2, pairs, sign);
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
