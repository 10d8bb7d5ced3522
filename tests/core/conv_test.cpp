// Convolutions and pools on every instruction level against naive loops.
#include "tests/support/windows.h"

namespace triax::test {
namespace {

class ConvKernel : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, ConvKernel, every_level_and_dtype(), name_of);

TEST_P(ConvKernel, ForwardAndBothGradientsAreThoseOfALoop) {
  for (const ConvCase& c : conv_cases()) {
    SCOPED_TRACE(str(c.x()) + " with " + str(c.weight()));
    Conv2d conv{randn(c.x(), dtype, 1), randn(c.weight(), dtype, 2, 0.2), c.windows(), c.groups};
    Tensor dy = randn(c.y(), dtype, 3), before = randn(c.weight(), sums, 4);
    Tensors got = on_any_threads([&] {
      Tensor y = full(c.y(), 7, dtype, cpu), dx = full(c.x(), 7, dtype, cpu);
      Tensor dw = full(c.weight(), 7, sums, cpu), more = clone(before);
      b.conv2d(conv, y);
      b.conv2d_backward_input(conv, dy, dx);
      b.conv2d_backward_weight(conv, dy, dw, Write::set);
      b.conv2d_backward_weight(conv, dy, more, Write::add);
      return Tensors{y, dx, dw, more};
    });
    auto x = doubles(conv.x), w = doubles(conv.weight), d = doubles(dy);
    std::vector<double> y(d.size()), dx(x.size()), dw(w.size()), more = doubles(before);
    each_product(c, [&](size_t i, size_t k, size_t o) {
      y[o] += x[i] * w[k];
      dx[i] += d[o] * w[k];
      dw[k] += d[o] * x[i];
      more[k] += d[o] * x[i];
    });
    expect_near(got[0], y, 4 * within);
    expect_near(got[1], dx, 8 * within);  // halves: of rounded patches
    expect_near(got[2], dw, dtype == f64 ? 1e-12 : 2.5e-4);
    expect_near(got[3], more, dtype == f64 ? 1e-12 : 2.5e-4);
  }
}

// PyTorch's rules: the first of equal ones, NaN before all; the mean counts padding.
TEST_P(ConvKernel, PoolsAreThoseOfALoop) {
  for (const ConvCase& c : conv_cases()) {
    if (2 * c.high.padding > c.high.window || 2 * c.wide.padding > c.wide.window) continue;
    SCOPED_TRACE(str(c.x()));
    Tensor x = randn(c.x(), dtype, 1).to(f32);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = i % 13 == 4 ? NAN : std::round(2 * x.data<float>()[i]);
    x = x.to(dtype);
    Tensor dy = randn(c.y(c.in), dtype, 3);
    Tensors got = on_any_threads([&] {
      Tensor y = full(dy.shape(), 7, dtype, cpu), mean = clone(y),
             chosen = zeros(y.shape(), i32, cpu);
      Tensor dx = full(c.x(), 7, dtype, cpu), dmean = clone(dx);
      b.pool({Pool2d::Kind::max, c.windows()}, x, y, chosen);
      b.pool({Pool2d::Kind::mean, c.windows()}, x, mean, {});
      b.pool_backward({Pool2d::Kind::max, c.windows()}, dy, chosen, dx);
      b.pool_backward({Pool2d::Kind::mean, c.windows()}, dy, {}, dmean);
      return Tensors{y, mean, dx, dmean};
    });
    auto in = doubles(x), d = doubles(dy);
    std::vector<double> top(d.size()), mean(d.size()), dx(in.size()), dmean(in.size());
    std::vector<int64_t> from(d.size(), -1);
    double share = 1 / double(c.high.window * c.wide.window);
    each_read(c, [&](int64_t pixel, int64_t row, int64_t) {
      for (int64_t ch = 0; ch < c.in; ++ch) {
        size_t i = size_t(pixel * c.in + ch), o = size_t(row * c.in + ch);
        mean[o] += in[i] * share;
        dmean[i] += d[o] * share;
        bool first = from[o] < 0, nan = std::isnan(in[i]) && !std::isnan(top[o]);
        if (first || nan || in[i] > top[o]) top[o] = in[i], from[o] = int64_t(i);
      }
    });
    for (size_t o = 0; o < d.size(); ++o) dx[size_t(from[o])] += d[o];
    expect_near(got[0], top, 0);
    expect_near(got[1], mean, within);
    expect_near(got[2], dx, 2 * within);
    expect_near(got[3], dmean, within);
  }
}

}  // namespace
}  // namespace triax::test
