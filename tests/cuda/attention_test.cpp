#include "triax/core/shared/attention.h"

#include "tests/cuda/emulated.h"
#include "tests/support/expect_error.h"

namespace triax::test {
namespace {

class CudaAttention : public CudaKernels {
 protected:
  struct Case {
    int64_t sequences, time, heads, dim;  // heads: of keys and values
    float p = 0;
    int64_t skip = 0;
    int64_t group = 1, keys = time;
    bool causal = true;
    int64_t window = 0;
    int64_t gap = 0;  // elements between rows
  };

  /// make(shape, seed) makes memory: views of one projection, or three tensors.
  template <class F> static Qkv qkv(const Case& c, F make) {
    auto rows = [&](int64_t tokens, int64_t group, uint64_t seed) {
      return make(Shape{tokens, c.heads, group, c.dim + c.gap}, seed).narrow(3, 0, c.dim);
    };
    int64_t tokens = c.sequences * c.time, keys = c.sequences * c.keys;
    if (c.keys == c.time) return unpack(rows(tokens, c.group + 2, 5));
    return {rows(tokens, c.group, 5), rows(keys, 1, 7), rows(keys, 1, 8)};
  }

  /// y, lse and the gradients of the same inputs.
  void expect_the_cpus(const Case& c) {
    SCOPED_TRACE(testing::Message()
                 << c.sequences << " of time " << c.time << " and " << c.keys << ", " << c.heads
                 << " x " << c.group << " of dim " << c.dim << ", p " << c.p << ", causal "
                 << c.causal << ", window " << c.window);
    int64_t tokens = c.sequences * c.time, heads = c.heads * c.group, width = heads * c.dim;
    Qkv in =
        qkv(c, [&](const Shape& s, uint64_t seed) { return exact(randn(s, dtype, seed), c.skip); });
    Tensor dy = exact(randn({tokens, width}, dtype, 6), c.skip);
    Band band = c.causal ? Band::causal(c.time, c.keys, c.window) : Band::all(c.time, c.keys);
    Attention a{in, c.time, band, {c.p, 99, 1000, 66}};
    Tensor saved = empty({tokens, width}, dtype, cpu), logs = empty({tokens, heads}, sums, cpu);
    host.attention(a, saved, logs);
    Tensor saved_y = exact(saved, c.skip), saved_lse = exact(logs);
    expect_equal(3 * within, [&](Outputs& on) {
      on->attention(a, on.out(saved.shape(), dtype, c.skip), on.out(logs.shape(), sums));
      Qkv d = qkv(c, [&](const Shape& s, uint64_t) { return on.out(s, dtype, c.skip); });
      on->attention_backward(a, saved_y, saved_lse, dy, d);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaAttention, every_dtype(), name_of_dtype);

TEST_P(CudaAttention, EqualsTheCpu) {
  expect_the_cpus({.sequences = 2, .time = 1, .heads = 2, .dim = 1});
  expect_the_cpus({.sequences = 1, .time = 1, .heads = 2, .dim = 64});
  expect_the_cpus({.sequences = 2, .time = 31, .heads = 1, .dim = 8});
  expect_the_cpus({.sequences = 1, .time = 31, .heads = 2, .dim = 33});
  expect_the_cpus({.sequences = 1, .time = 33, .heads = 2, .dim = 1});
  expect_the_cpus({.sequences = 2, .time = 33, .heads = 2, .dim = 64});
}

TEST_P(CudaAttention, WideHeads) {
  expect_the_cpus({.sequences = 1, .time = 65, .heads = 1, .dim = 128});
  expect_the_cpus({.sequences = 1, .time = 34, .heads = 1, .dim = 200});
  expect_the_cpus({.sequences = 1, .time = 3, .heads = 2, .dim = 256});
}

TEST_P(CudaAttention, SeveralBlocks) {
  expect_the_cpus({.sequences = 1, .time = 100, .heads = 2, .dim = 64});
  expect_the_cpus({.sequences = 1, .time = 129, .heads = 1, .dim = 33});
}

TEST_P(CudaAttention, DropsWhatTheCpuDrops) {
  expect_the_cpus({.sequences = 2, .time = 31, .heads = 3, .dim = 16, .p = 0.3f});
  expect_the_cpus({.sequences = 1, .time = 100, .heads = 1, .dim = 5, .p = 0.6f});
  expect_the_cpus({.sequences = 1, .time = 33, .heads = 2, .dim = 128, .p = 0.3f});
}

TEST_P(CudaAttention, GroupedQueries) {
  expect_the_cpus({.sequences = 2, .time = 33, .heads = 2, .dim = 16, .group = 3});
  expect_the_cpus({.sequences = 1, .time = 100, .heads = 1, .dim = 5, .p = 0.3f, .group = 2});
}

// A window of one key, one within a tile and one over several, some rows of which see nothing of a
// block's first tile.
TEST_P(CudaAttention, Windows) {
  expect_the_cpus({.sequences = 1, .time = 70, .heads = 2, .dim = 16, .window = 1});
  expect_the_cpus({.sequences = 1, .time = 130, .heads = 1, .dim = 64, .window = 9});
  expect_the_cpus({.sequences = 1, .time = 70, .heads = 1, .dim = 8, .window = INT64_MAX});
  expect_the_cpus({.sequences = 2, .time = 200, .heads = 1, .dim = 8, .p = 0.3f, .window = 90});
}

TEST_P(CudaAttention, EveryKey) {
  expect_the_cpus({.sequences = 2, .time = 33, .heads = 2, .dim = 16, .causal = false});
  expect_the_cpus({.sequences = 1, .time = 100, .heads = 1, .dim = 64, .causal = false});
}

TEST_P(CudaAttention, OtherKeysThanQueries) {
  Case c{.sequences = 2, .time = 33, .heads = 2, .dim = 16, .group = 2, .keys = 75};
  for (bool causal : {false, true}) c.causal = causal, expect_the_cpus(c);
  expect_the_cpus({.sequences = 2, .time = 1, .heads = 1, .dim = 64, .keys = 101});
  expect_the_cpus({.sequences = 1, .time = 75, .heads = 1, .dim = 8, .keys = 7, .causal = false});
  expect_the_cpus({.sequences = 1, .time = 40, .heads = 1, .dim = 8, .keys = 161, .window = 30});
}

TEST_P(CudaAttention, AnyAddress) {
  expect_the_cpus({.sequences = 1, .time = 33, .heads = 2, .dim = 16, .skip = 1});
  expect_the_cpus({.sequences = 1, .time = 33, .heads = 2, .dim = 16, .keys = 40, .gap = 1});
}

// Scores far from zero neither overflow nor lose the largest weight.
TEST_P(CudaAttention, LargeScores) {
  Attention a{unpack(exact(randn({70, 1, 3, 4}, dtype, 5, 30))), 70, Band::causal(70, 70)};
  expect_equal(std::max(within, 1000 * tolerance(sums)), [&](Outputs& on) {
    on->attention(a, on.out({70, 4}), on.out({70, 1}, sums));
  });
}

TEST_P(CudaAttention, NoSequences) {
  int64_t before = cuda::emulation::launches();
  expect_the_cpus({.sequences = 0, .time = 8, .heads = 2, .dim = 4});
  EXPECT_EQ(cuda::emulation::launches(), before);
}

TEST_P(CudaAttention, RefusesHeadsThatDoNotFit) {
  Tensor y = empty({2, 257}, dtype, cpu), lse = empty({2, 1}, sums, cpu);
  Attention a{unpack(empty({2, 1, 3, 257}, dtype, cpu)), 2, Band::causal(2, 2)};
  std::vector<std::string> parts = {"attention", "head size 257", "at most 256 on cuda"};
  expect_config_error([&] { b.attention(a, y, lse); }, parts);
  expect_config_error([&] { b.attention_backward(a, y, lse, y, a.in); }, parts);
}

}  // namespace
}  // namespace triax::test
