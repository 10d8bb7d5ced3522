#include "triax/core/shared/attention.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>

#include "triax/core/cpu/levels.h"
#include "triax/core/random.h"
#include "triax/core/shared/team.h"

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

/// How queries, keys and values lie in memory.
enum class Lie { packed, apart, padded };

struct Case {
  int64_t sequences, time, heads, dim;  // heads: of keys and values
  float p = 0;
  int64_t group = 1, keys = time;
  bool causal = true;
  int64_t window = 0;
  Lie lie = keys == time ? Lie::packed : Lie::apart;

  int64_t tokens() const { return sequences * time; }
  int64_t queries() const { return heads * group; }  // heads of queries
  int64_t width() const { return queries() * dim; }
  random::Mask mask() const { return {.p = p, .key = 99, .row = 1000, .column = 64}; }
  Band band() const { return causal ? Band::causal(time, keys, window) : Band::all(time, keys); }
  Shape of_q() const { return {tokens(), heads, group, dim}; }
  Shape of_kv() const { return {sequences * keys, heads, 1, dim}; }
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.sequences << " of time " << c.time << " and " << c.keys << ", heads " << c.heads
             << " x " << c.group << " of dim " << c.dim << ", p " << c.p << ", causal " << c.causal
             << ", window " << c.window << ", lie " << int(c.lie);
}

/// Row-major, in the shapes of Qkv.
struct Values {
  std::vector<double> q, k, v;
  explicit Values(const Case& c, double scale = 2)
      : q(values(c.of_q().numel(), 5, scale)),
        k(values(c.of_kv().numel(), 7, scale)),
        v(values(c.of_kv().numel(), 8, scale)) {}
  explicit Values(const Qkv& x) : q(doubles(x.q)), k(doubles(x.k)), v(doubles(x.v)) {}
};

struct Outputs {
  std::vector<double> y, lse;
};

/// Attention in double, straight from its definition (Vaswani et al. 2017, 3.2.1).
Outputs naive(const Case& c, const Values& x) {
  Outputs out{std::vector<double>(size_t(c.tokens() * c.width())),
              std::vector<double>(size_t(c.tokens() * c.queries()))};
  for (int64_t t = 0; t < c.tokens(); ++t)
    for (int64_t h = 0; h < c.queries(); ++h) {
      int64_t sequence = t / c.time, at = t % c.time + c.keys - c.time;  // among the keys
      auto row = [&](int64_t key) {
        return size_t(((sequence * c.keys + key) * c.heads + h / c.group) * c.dim);
      };
      auto query = size_t((t * c.queries() + h) * c.dim);
      double sum = 0;
      std::vector<double> weight(size_t(c.keys), 0.0);
      for (int64_t j = 0; j < c.keys; ++j) {
        if (c.causal && (j > at || (c.window > 0 && j <= at - c.window))) continue;
        double s = 0;
        for (size_t d = 0; d < size_t(c.dim); ++d) s += x.q[query + d] * x.k[row(j) + d];
        sum += weight[size_t(j)] = std::exp(s / std::sqrt(double(c.dim)));
      }
      out.lse[size_t(t * c.queries() + h)] = std::log(sum);
      for (int64_t j = 0; j < c.keys; ++j) {
        double w = weight[size_t(j)] / sum;
        if (c.p > 0) w *= double(c.mask().at(t, h * c.keys + j));
        for (size_t d = 0; d < size_t(c.dim); ++d) out.y[query + d] += w * x.v[row(j) + d];
      }
    }
  return out;
}

struct Results {
  Tensor y, lse;
  Qkv d;
};

/// Memory for queries, keys and values, NaN in every element.
Qkv memory_for(const Case& c, DType dtype) {
  auto make = [&](Shape s) { return full(s, NAN, dtype, cpu); };
  if (c.lie == Lie::packed) return unpack(make({c.tokens(), c.heads, c.group + 2, c.dim}));
  auto one = [&](Shape s) {
    if (c.lie == Lie::apart) return make(s);
    return make({s[0], s[1] + 1, s[2], s[3] + 3}).narrow(1, 1, s[1]).narrow(3, 2, s[3]);
  };
  return {one(c.of_q()), one(c.of_kv()), one(c.of_kv())};
}
Qkv tensors(const Case& c, const Values& x, DType dtype) {
  Qkv to = memory_for(c, dtype);
  copy_(to.q, from_host(x.q, c.of_q(), cpu));
  copy_(to.k, from_host(x.k, c.of_kv(), cpu));
  copy_(to.v, from_host(x.v, c.of_kv(), cpu));
  return to;
}

class AttentionTest : public testing::TestWithParam<std::string> {
 protected:
  /// Forward and backward on this level, in the dtype of `in`.
  Results run(const Case& c, const Qkv& in, const Tensor& dy) {
    DType dtype = dy.dtype();
    Attention a{in, c.time, c.band(), c.mask()};
    Results r{full({c.tokens(), c.width()}, NAN, dtype, cpu),
              full({c.tokens(), c.queries()}, NAN, accumulator(dtype), cpu), memory_for(c, dtype)};
    backend_.attention(a, r.y, r.lse);
    backend_.attention_backward(a, r.y, r.lse, dy, r.d);
    return r;
  }
  Backend& backend_ = host::backend_of(GetParam());
};

Tensor gradient(const Case& c, DType dtype) {
  return from_host(values(c.tokens() * c.width(), 6), {c.tokens(), c.width()}, cpu).to(dtype);
}

void expect_near(const std::vector<double>& expected, const Tensor& actual, double tolerance) {
  std::vector<double> got = doubles(actual);
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(expected[i], got[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}
void expect_near(const Values& expected, const Qkv& actual, double tolerance) {
  ASSERT_NO_FATAL_FAILURE(expect_near(expected.q, actual.q, tolerance)) << "of queries";
  ASSERT_NO_FATAL_FAILURE(expect_near(expected.k, actual.k, tolerance)) << "of keys";
  ASSERT_NO_FATAL_FAILURE(expect_near(expected.v, actual.v, tolerance)) << "of values";
}

// Grouped queries, windows, cross attention, keys that no query sees, one query (generation).
const Case forms[] = {
    {.sequences = 2, .time = 33, .heads = 2, .dim = 5, .group = 3},
    {.sequences = 1, .time = 100, .heads = 1, .dim = 64, .group = 2, .window = 1},
    {.sequences = 2, .time = 70, .heads = 2, .dim = 16, .group = 2, .window = 9},
    {.sequences = 1, .time = 200, .heads = 1, .dim = 32, .group = 2, .window = 40},
    {.sequences = 2, .time = 40, .heads = 3, .dim = 8, .causal = false},
    {.sequences = 2, .time = 33, .heads = 2, .dim = 8, .keys = 75, .causal = false},
    {.sequences = 1, .time = 75, .heads = 1, .dim = 8, .group = 2, .keys = 7, .causal = false},
    {.sequences = 2, .time = 20, .heads = 1, .dim = 8, .keys = 53},
    {.sequences = 2, .time = 50, .heads = 2, .dim = 40, .keys = 131, .window = 20},
    {.sequences = 2, .time = 1, .heads = 2, .dim = 16, .group = 4, .keys = 77},
    {.sequences = 1, .time = 1, .heads = 3, .dim = 40, .p = 0.3f, .keys = 131, .window = 20},
    {.sequences = 3, .time = 1, .heads = 2, .dim = 7, .group = 2, .keys = 300, .lie = Lie::padded},
    {.sequences = 2, .time = 21, .heads = 2, .dim = 8, .p = 0.3f, .group = 2, .lie = Lie::apart},
    {2, 21, 2, 8, 0.3f, 2, 45, false, 0, Lie::padded},
    {1, 90, 2, 64, 0.3f, 2, 90, true, 50, Lie::padded},
};

TEST_P(AttentionTest, ForwardMatchesTheDefinition) {
  std::vector<Case> cases(std::begin(forms), std::end(forms));
  for (int64_t time : {1, 7, 33, 64, 100})
    for (int64_t dim : {1, 5, 16, 64})
      for (float p : {0.f, 0.3f}) cases.push_back({2, time, 3, dim, p});
  for (DType dtype : {f32, f64, f16, bf16})
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << c);
      Qkv in = tensors(c, Values(c), dtype);
      Results r = run(c, in, gradient(c, dtype));
      Outputs expected = naive(c, Values(in));
      ASSERT_NO_FATAL_FAILURE(expect_near(expected.y, r.y, 32 * epsilon(f32) + epsilon(dtype)));
      ASSERT_NO_FATAL_FAILURE(expect_near(expected.lse, r.lse, 32 * epsilon(accumulator(dtype))));
    }
}

// In f64 against central differences; every other dtype against f64.
TEST_P(AttentionTest, BackwardIsTheGradient) {
  for (Case c :
       {Case{2, 1, 1, 1}, Case{2, 7, 2, 5}, Case{1, 33, 1, 3, 0.25f}, Case{2, 5, 3, 4, 0.5f},
        Case{2, 7, 2, 3, 0, 3}, Case{1, 20, 1, 2, 0.25f, 2, 20, true, 3},
        Case{2, 5, 1, 3, 0, 2, 9, false}, Case{2, 4, 2, 3, 0, 1, 11},
        Case{1, 4, 1, 2, 0, 2, 33, true, 6}, Case{1, 9, 2, 2, 0.25f, 2, 4, false}}) {
    SCOPED_TRACE(testing::Message() << c);
    Values x(c), expected(c);
    std::vector<double> g = values(c.tokens() * c.width(), 6);
    auto loss = [&] {
      std::vector<double> y = naive(c, x).y;
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
      return sum;
    };
    auto differences = [&](std::vector<double>& of, std::vector<double>& to) {
      for (size_t i = 0; i < of.size(); ++i) {
        double old = of[i], step = 1e-5;
        of[i] = old + step;
        double up = loss();
        of[i] = old - step;
        to[i] = (up - loss()) / (2 * step);
        of[i] = old;
      }
    };
    differences(x.q, expected.q), differences(x.k, expected.k), differences(x.v, expected.v);
    expect_near(expected, run(c, tensors(c, x, f64), gradient(c, f64)).d, 1e-8);
  }
}

TEST_P(AttentionTest, LowPrecisionBackwardFollowsF64) {
  std::vector<Case> cases(std::begin(forms), std::end(forms));
  for (Case c : {Case{2, 100, 2, 64}, Case{1, 300, 1, 16, 0.2f}, Case{2, 65, 1, 33},
                 Case{1, 31, 2, 80, 0.1f}})
    cases.push_back(c);
  for (DType dtype : {f32, f16, bf16})
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << c);
      Qkv in = tensors(c, Values(c), dtype);
      Tensor dy = gradient(c, dtype);
      Results exact = run(c, tensors(c, Values(in), f64), dy.to(f64)), r = run(c, in, dy);
      // delta = sum(dy * y) reads a rounded y.
      expect_near(Values(exact.d), r.d, 64 * epsilon(f32) + 4 * epsilon(dtype));
    }
}

TEST_P(AttentionTest, ThreadsDoNotChangeABit) {
  int before = team_threads();
  for (DType dtype : {f32, bf16})
    for (Case c : {Case{1, 150, 1, 16}, Case{3, 40, 3, 8, 0.5f}, Case{1, 90, 1, 16, 0, 3, 120},
                   Case{1, 1, 5, 64, 0, 3, 900}}) {
      Qkv in = tensors(c, Values(c), dtype);
      Tensor dy = gradient(c, dtype);
      set_threads(1);
      Results one = run(c, in, dy);
      for (int threads : {2, 3, 7}) {
        set_threads(threads);
        EXPECT_EQ(threads_here(), threads);
        Results r = run(c, in, dy);
        EXPECT_EQ(doubles(one.y), doubles(r.y));
        EXPECT_EQ(doubles(one.lse), doubles(r.lse));
        expect_near(Values(one.d), r.d, 0);
      }
      set_threads(before);
    }
}

// Scores far from zero neither overflow nor lose the largest weight.
TEST_P(AttentionTest, LargeScores) {
  Case c{.sequences = 1, .time = 70, .heads = 1, .dim = 4};
  for (DType dtype : {f32, bf16}) {
    Qkv in = tensors(c, Values(c, 60), dtype);
    Tensor dy = gradient(c, dtype);
    Results r = run(c, in, dy), exact = run(c, tensors(c, Values(in), f64), dy.to(f64));
    expect_near(doubles(exact.y), r.y, dtype == f32 ? 1e-3 : 2 * epsilon(dtype));
    for (double v : Values(r.d).k) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(AttentionTest, NoSequences) {
  Case c{.sequences = 0, .time = 8, .heads = 2, .dim = 4};
  EXPECT_EQ(run(c, memory_for(c, f32), gradient(c, f32)).y.numel(), 0);
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
  Qkv in = tensors(c, Values(c), f32);
  Tensor dy = gradient(c, f32);
  memory::counter()->reset_peaks();
  int64_t live = memory::counter()->live(), before = resident();
  Results r = run(c, in, dy);
  EXPECT_LE(memory::counter()->peak() - live,
            int64_t(r.y.bytes() + r.lse.bytes() + 3 * r.d.q.bytes()) + 4096);
  EXPECT_LE(resident() - before, 24 << 10);
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionTest, testing::ValuesIn(host::levels()),
                         [](auto& level) { return level.param; });

}  // namespace
}  // namespace triax
