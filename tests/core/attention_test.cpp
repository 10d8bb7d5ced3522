#include <gtest/gtest.h>
#include <omp.h>
#include <sys/resource.h>

#include <cmath>

#include "core/cpu/levels.h"
#include "core/random.h"

namespace triax {
namespace {

double epsilon(DType t) {
  return t == f64 ? 0x1p-52 : t == f32 ? 0x1p-23 : t == f16 ? 0x1p-10 : 0x1p-7;
}

std::vector<double> values(int64_t count, uint64_t key, double scale = 1) {
  std::vector<double> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = scale * (2.0 * random::uniform(key, i, 0) - 1.0);
  return v;
}
std::vector<double> doubles(const Tensor& x) { return x.to(f64).to_host<double>(); }

struct Case {
  int64_t sequences, time, heads, dim;
  float p = 0;
  int64_t tokens() const { return sequences * time; }
  int64_t width() const { return heads * dim; }
  random::Mask mask() const { return {.p = p, .key = 99, .row = 1000, .column = 64}; }
};

struct Outputs {
  std::vector<double> y, lse;
};

/// Causal attention in double, straight from its definition (Vaswani et al. 2017, 3.2.1).
Outputs naive(const Case& c, const std::vector<double>& qkv) {
  Outputs out{std::vector<double>(size_t(c.tokens() * c.width())),
              std::vector<double>(size_t(c.tokens() * c.heads))};
  auto at = [&](int64_t token, int64_t head, int part, int64_t d) {
    return qkv[size_t(((token * c.heads + head) * 3 + part) * c.dim + d)];
  };
  for (int64_t t = 0; t < c.tokens(); ++t)
    for (int64_t h = 0; h < c.heads; ++h) {
      int64_t first = t / c.time * c.time;
      double sum = 0;
      std::vector<double> weight;
      for (int64_t j = first; j <= t; ++j) {
        double s = 0;
        for (int64_t d = 0; d < c.dim; ++d) s += at(t, h, 0, d) * at(j, h, 1, d);
        weight.push_back(std::exp(s / std::sqrt(double(c.dim))));
        sum += weight.back();
      }
      out.lse[size_t(t * c.heads + h)] = std::log(sum);
      for (int64_t j = first; j <= t; ++j) {
        double w = weight[size_t(j - first)] / sum;
        if (c.p > 0) w *= double(c.mask().at(t, h * c.time + j - first));
        for (int64_t d = 0; d < c.dim; ++d)
          out.y[size_t((t * c.heads + h) * c.dim + d)] += w * at(j, h, 2, d);
      }
    }
  return out;
}

struct Tensors4 {
  Tensor y, lse, dqkv;
};

class AttentionTest : public testing::TestWithParam<std::string> {
 protected:
  /// Forward and backward on this level, in `dtype`.
  Tensors4 run(const Case& c, const Tensor& qkv, const Tensor& dy) {
    DType dtype = qkv.dtype();
    Attention a{.qkv = qkv, .time = c.time, .head_dim = c.dim, .mask = c.mask()};
    Tensors4 t{full({c.tokens(), c.width()}, NAN, dtype, cpu),
               full({c.tokens(), c.heads}, NAN, accumulator(dtype), cpu),
               full(qkv.shape(), NAN, dtype, cpu)};
    backend_.causal_attention(a, t.y, t.lse);
    backend_.causal_attention_backward(a, t.y, t.lse, dy, t.dqkv);
    return t;
  }
  Backend& backend_ = host::backend_of(GetParam());
};

Tensor tensor(const std::vector<double>& v, int64_t rows, DType dtype) {
  return from_host(v, {rows, int64_t(v.size()) / rows}, cpu).to(dtype);
}

void expect_near(const std::vector<double>& expected, const Tensor& actual, double tolerance) {
  std::vector<double> got = doubles(actual);
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(expected[i], got[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

TEST_P(AttentionTest, ForwardMatchesTheDefinition) {
  for (DType dtype : {f32, f64, f16, bf16})
    for (int64_t time : {1, 7, 33, 64, 100})
      for (int64_t dim : {1, 5, 16, 64})
        for (float p : {0.f, 0.3f}) {
          Case c{.sequences = 2, .time = time, .heads = 3, .dim = dim, .p = p};
          SCOPED_TRACE(testing::Message()
                       << name(dtype) << " time " << time << " dim " << dim << " p " << p);
          Tensor qkv = tensor(values(c.tokens() * 3 * c.width(), 5, 2), c.tokens(), dtype);
          Tensor dy = tensor(values(c.tokens() * c.width(), 6), c.tokens(), dtype);
          Tensors4 t = run(c, qkv, dy);
          Outputs expected = naive(c, doubles(qkv));
          ASSERT_NO_FATAL_FAILURE(expect_near(expected.y, t.y, 32 * epsilon(f32) + epsilon(dtype)));
          ASSERT_NO_FATAL_FAILURE(
              expect_near(expected.lse, t.lse, 32 * epsilon(accumulator(dtype))));
        }
}

// In f64 against central differences; every other dtype against f64.
TEST_P(AttentionTest, BackwardIsTheGradient) {
  for (Case c :
       {Case{2, 1, 1, 1}, Case{2, 7, 2, 5}, Case{1, 33, 1, 3, 0.25f}, Case{2, 5, 3, 4, 0.5f}}) {
    SCOPED_TRACE(testing::Message() << c.time << ' ' << c.dim << ' ' << c.p);
    std::vector<double> x = values(c.tokens() * 3 * c.width(), 5, 2);
    std::vector<double> g = values(c.tokens() * c.width(), 6), expected(x.size());
    auto loss = [&] {
      std::vector<double> y = naive(c, x).y;
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
      return sum;
    };
    for (size_t i = 0; i < x.size(); ++i) {
      double old = x[i], step = 1e-5;
      x[i] = old + step;
      double up = loss();
      x[i] = old - step;
      expected[i] = (up - loss()) / (2 * step);
      x[i] = old;
    }
    Tensor qkv = tensor(x, c.tokens(), f64), dy = tensor(g, c.tokens(), f64);
    expect_near(expected, run(c, qkv, dy).dqkv, 1e-8);
  }
}

TEST_P(AttentionTest, LowPrecisionBackwardFollowsF64) {
  for (DType dtype : {f32, f16, bf16})
    for (Case c : {Case{2, 100, 2, 64}, Case{1, 300, 1, 16, 0.2f}, Case{2, 65, 1, 33},
                   Case{1, 31, 2, 80, 0.1f}}) {
      SCOPED_TRACE(testing::Message()
                   << name(dtype) << ' ' << c.time << ' ' << c.dim << ' ' << c.p);
      Tensor qkv = tensor(values(c.tokens() * 3 * c.width(), 5, 2), c.tokens(), dtype);
      Tensor dy = tensor(values(c.tokens() * c.width(), 6), c.tokens(), dtype);
      Tensors4 exact = run(c, qkv.to(f64), dy.to(f64)), t = run(c, qkv, dy);
      // delta = sum(dy * y) reads a rounded y.
      expect_near(doubles(exact.dqkv), t.dqkv, 64 * epsilon(f32) + 4 * epsilon(dtype));
    }
}

TEST_P(AttentionTest, ThreadsDoNotChangeABit) {
  int before = omp_get_max_threads();
  for (DType dtype : {f32, bf16})
    for (Case c : {Case{1, 150, 1, 16}, Case{3, 40, 3, 8, 0.5f}}) {
      Tensor qkv = tensor(values(c.tokens() * 3 * c.width(), 5, 2), c.tokens(), dtype);
      Tensor dy = tensor(values(c.tokens() * c.width(), 6), c.tokens(), dtype);
      omp_set_num_threads(1);
      Tensors4 one = run(c, qkv, dy);
      for (int threads : {2, 3, 7}) {
        omp_set_num_threads(threads);
        Tensors4 t = run(c, qkv, dy);
        EXPECT_EQ(doubles(one.y), doubles(t.y));
        EXPECT_EQ(doubles(one.lse), doubles(t.lse));
        EXPECT_EQ(doubles(one.dqkv), doubles(t.dqkv));
      }
      omp_set_num_threads(before);
    }
}

// Scores far from zero neither overflow nor lose the largest weight.
TEST_P(AttentionTest, LargeScores) {
  Case c{.sequences = 1, .time = 70, .heads = 1, .dim = 4};
  for (DType dtype : {f32, bf16}) {
    Tensor qkv = tensor(values(c.tokens() * 12, 5, 60), c.tokens(), dtype);
    Tensor dy = tensor(values(c.tokens() * 4, 6), c.tokens(), dtype);
    Tensors4 t = run(c, qkv, dy), exact = run(c, qkv.to(f64), dy.to(f64));
    expect_near(doubles(exact.y), t.y, dtype == f32 ? 1e-3 : 2 * epsilon(dtype));
    for (double v : doubles(t.dqkv)) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(AttentionTest, NoSequences) {
  Attention a{.qkv = empty({0, 24}, f32, cpu), .time = 8, .head_dim = 4, .mask = {}};
  Tensor y = empty({0, 8}, f32, cpu), lse = empty({0, 2}, f32, cpu);
  backend_.causal_attention(a, y, lse);
  backend_.causal_attention_backward(a, y, lse, y, empty({0, 24}, f32, cpu));
}

// Nothing that grows with time x time is ever made. Working memory is not counted as tensors, but
// what is resident shows it: one such matrix would be 64 MiB here.
TEST_P(AttentionTest, MemoryIsLinearInTime) {
  auto resident = [] {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;  // KiB, highest so far
  };
  Case c{.sequences = 1, .time = 4096, .heads = 1, .dim = 8};
  Tensor qkv = tensor(values(c.tokens() * 24, 5), c.tokens(), f32);
  Tensor dy = tensor(values(c.tokens() * 8, 6), c.tokens(), f32);
  memory::counter()->reset_peaks();
  int64_t live = memory::counter()->live(), before = resident();
  Tensors4 t = run(c, qkv, dy);
  EXPECT_LE(memory::counter()->peak() - live,
            int64_t(t.y.bytes() + t.lse.bytes() + t.dqkv.bytes()) + 4096);
  EXPECT_LE(resident() - before, 24 << 10);
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionTest, testing::ValuesIn(host::levels()),
                         [](auto& level) { return level.param; });

}  // namespace
}  // namespace triax
