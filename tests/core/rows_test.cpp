#include "tests/core/kernels.h"

namespace triax::test {
namespace {

class Rows : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, Rows, every_level_and_dtype(), name_of);

const std::vector<Shape> shapes = {{3, 1}, {5, 31}, {4, 33}, {70, 1000}, {0, 8}, {2, 3, 7}, {6, 0}};

// f(values of one row, place of the row) over all rows of x.
template <class F> void each_row(const Tensor& x, F f) {
  size_t width = size_t(x.size(-1));
  for (size_t at = 0; width && at < size_t(x.numel()); at += width) f(at, width);
}

double log_sum_exp(const std::vector<double>& x, size_t at, size_t n) {
  double m = -INFINITY, s = 0;
  for (size_t i = 0; i < n; ++i) m = std::max(m, x[at + i]);
  for (size_t i = 0; i < n; ++i) s += std::exp(x[at + i] - m);
  return m + std::log(s);
}

TEST_P(Rows, Softmax) {
  for (const Shape& shape : shapes) {
    Tensor x = randn(shape, dtype, 1, 5);
    Tensors y = on_any_threads([&] {
      Tensor p = empty_like(x), l = empty_like(x);
      b.softmax(x, p);
      b.log_softmax(x, l);
      return Tensors{p, l};
    });
    std::vector<double> p = doubles(x), l = p;
    each_row(x, [&](size_t at, size_t n) {
      double lse = log_sum_exp(l, at, n);
      for (size_t i = at; i < at + n; ++i) p[i] = std::exp(l[i] -= lse);
    });
    expect_near(y[0], p, within);
    expect_near(y[1], l, within);
  }
}

TEST_P(Rows, SoftmaxOfHugeAndMaskedLogits) {
  double big = dtype == f16 ? 6e4 : 1e30, inf = INFINITY;
  Tensor x = from_host(std::vector<double>{big, -big, -inf, big, -inf, 0, -inf, -inf}, {2, 4}, cpu);
  Tensor y = empty({2, 4}, dtype, cpu);
  b.softmax(x.to(dtype), y);
  expect_near(y, {0.5, 0, 0, 0.5, 0, 1, 0, 0}, 1e-6);
}

TEST_P(Rows, SoftmaxBackward) {
  for (const Shape& shape : shapes) {
    Tensor x = randn(shape, dtype, 1, 2), p = empty_like(x), l = empty_like(x);
    Tensor dy = randn(shape, dtype, 2);
    b.softmax(x, p);
    b.log_softmax(x, l);
    Tensors dx = on_any_threads([&] {
      Tensor dp = empty_like(x), dl = empty_like(x);
      b.softmax_backward(p, dy, dp);
      b.log_softmax_backward(l, dy, dl);
      return Tensors{dp, dl};
    });
    std::vector<double> g = doubles(dy), vp = doubles(p), vl = doubles(l), ep = g, el = g;
    each_row(x, [&](size_t at, size_t n) {
      double dot = 0, sum = 0;
      for (size_t i = at; i < at + n; ++i) dot += vp[i] * g[i], sum += g[i];
      for (size_t i = at; i < at + n; ++i) {
        ep[i] = vp[i] * (g[i] - dot);
        el[i] = g[i] - std::exp(vl[i]) * sum;
      }
    });
    expect_near(dx[0], ep, within);
    expect_near(dx[1], el, 4 * within);
  }
}

struct Inputs {
  Tensor x, gamma, beta, mean, rstd, dy;
  Norm norm;
  bool layer;  // else RMS norm
};

Inputs inputs(const Shape& shape, DType dtype, bool layer) {
  int64_t width = shape.back(), rows = width ? shape.numel() / width : 0;
  Inputs in{randn(shape, dtype, 1),
            randn({width}, dtype, 2),
            {},
            {},
            {},
            randn(shape, dtype, 4),
            {},
            layer};
  Tensor shifted = in.x.to(f64);
  for (int64_t i = 0; i < shifted.numel(); ++i) shifted.data<double>()[i] += 1.5;
  in.x = shifted.to(dtype);
  in.rstd = empty({rows}, accumulator(dtype), cpu);
  if (layer) {
    in.beta = randn({width}, dtype, 3);
    in.mean = empty_like(in.rstd);
  }
  in.norm = {in.x, in.gamma, in.beta, in.mean, in.rstd, 1e-5};
  return in;
}

// Naive mean and rstd of each row.
void moments(const Inputs& in, std::vector<double>& mean, std::vector<double>& rstd) {
  std::vector<double> x = doubles(in.x);
  each_row(in.x, [&](size_t at, size_t n) {
    double m = 0, v = 0;
    for (size_t i = at; in.layer && i < at + n; ++i) m += x[i] / double(n);
    for (size_t i = at; i < at + n; ++i) v += (x[i] - m) * (x[i] - m) / double(n);
    mean.push_back(m);
    rstd.push_back(1 / std::sqrt(v + 1e-5));
  });
}

const std::vector<Shape> norm_shapes = {{3, 1}, {5, 31}, {4, 33}, {300, 384}, {0, 8}, {7, 1000}};

TEST_P(Rows, Norm) {
  for (const Shape& shape : norm_shapes)
    for (bool layer : {true, false}) {
      Inputs in = inputs(shape, dtype, layer);
      Tensors y = on_any_threads([&] {
        Tensor out = empty_like(in.x);
        b.norm(in.norm, out);
        return Tensors{out, clone(in.rstd)};
      });
      std::vector<double> mean, rstd, expected = doubles(in.x), gamma = doubles(in.gamma);
      moments(in, mean, rstd);
      size_t width = gamma.size();
      for (size_t i = 0; i < expected.size(); ++i) {
        size_t r = i / width, c = i % width;
        expected[i] = (expected[i] - mean[r]) * rstd[r] * gamma[c];
        if (layer) expected[i] += doubles(in.beta.narrow(0, int64_t(c), 1))[0];
      }
      double slack = width == 1 ? 300 : 1;  // a variance of 0: all of x is cancelled
      expect_near(y[0], expected, slack * within);
      expect_near(y[1], rstd, slack * tolerance(sums));
      if (layer) expect_near(in.mean, mean, tolerance(sums));
    }
}

TEST_P(Rows, NormBackward) {
  for (const Shape& shape : norm_shapes)
    for (bool layer : {true, false})
      for (Write write : {Write::set, Write::add}) {
        Inputs in = inputs(shape, dtype, layer);
        Tensor y = empty_like(in.x), before = randn(shape, dtype, 6);
        b.norm(in.norm, y);
        Tensors dx = on_any_threads([&] {
          Tensor out = clone(before);
          b.norm_backward(in.norm, in.dy, out, write);
          return Tensors{out};
        });
        std::vector<double> mean, rstd, x = doubles(in.x), gamma = doubles(in.gamma);
        std::vector<double> g = doubles(in.dy), expected = doubles(before);
        moments(in, mean, rstd);
        each_row(in.x, [&](size_t at, size_t n) {
          double m = mean[at / n], s = rstd[at / n], sum = 0, dot = 0;
          for (size_t i = 0; i < n; ++i) {
            sum += gamma[i] * g[at + i] / double(n);
            dot += gamma[i] * g[at + i] * (x[at + i] - m) * s / double(n);
          }
          for (size_t i = 0; i < n; ++i) {
            double d = gamma[i] * g[at + i] - (layer ? sum : 0) - (x[at + i] - m) * s * dot;
            expected[at + i] = (write == Write::add ? expected[at + i] : 0) + s * d;
          }
        });
        expect_near(dx[0], expected, shape.back() == 1 ? 0.1 : 4 * within);
      }
}

TEST_P(Rows, NormBackwardWeights) {
  for (const Shape& shape : norm_shapes)
    for (bool layer : {true, false})
      for (Write write : {Write::set, Write::add})
        for (DType out : {dtype, sums}) {
          Inputs in = inputs(shape, dtype, layer);
          Tensor y = empty_like(in.x);
          Tensor old_gamma = randn({shape.back()}, out, 6),
                 old_beta = randn({shape.back()}, out, 7);
          b.norm(in.norm, y);
          Tensors d = on_any_threads([&] {
            Tensor dgamma = clone(old_gamma), dbeta = clone(old_beta);
            b.norm_backward_weights(in.norm, in.dy, dgamma, layer ? dbeta : Tensor(), write);
            return Tensors{dgamma, dbeta};
          });
          std::vector<double> mean, rstd, x = doubles(in.x), g = doubles(in.dy);
          std::vector<double> dgamma = doubles(old_gamma), dbeta = doubles(old_beta);
          moments(in, mean, rstd);
          if (write == Write::set) std::fill(dgamma.begin(), dgamma.end(), 0);
          if (write == Write::set && layer) std::fill(dbeta.begin(), dbeta.end(), 0);
          for (size_t i = 0, n = dgamma.size(); i < x.size(); ++i) {
            dgamma[i % n] += g[i] * (x[i] - mean[i / n]) * rstd[i / n];
            if (layer) dbeta[i % n] += g[i];
          }
          double slack = shape.back() == 1 ? 300 : 8;
          expect_near(d[0], dgamma, tolerance(out) + slack * tolerance(sums));
          expect_near(d[1], dbeta, tolerance(out) + slack * tolerance(sums));
        }
}

}  // namespace
}  // namespace triax::test
