#include "tests/cuda/emulated.h"
#include "tests/support/expect_error.h"

namespace triax::test {
namespace {

class CudaAttention : public CudaKernels {
 protected:
  struct Case {
    int64_t sequences, time, heads, dim;
    float p = 0;
    int64_t skip = 0;
  };

  /// y, lse and dqkv of the same inputs.
  void expect_the_cpus(const Case& c) {
    SCOPED_TRACE(testing::Message() << c.sequences << " of time " << c.time << ", " << c.heads
                                    << " of dim " << c.dim << ", p " << c.p);
    int64_t tokens = c.sequences * c.time, width = c.heads * c.dim;
    Tensor qkv = exact(randn({tokens, 3 * width}, dtype, 5), c.skip);
    Tensor dy = exact(randn({tokens, width}, dtype, 6), c.skip);
    Attention a{qkv, c.time, c.dim, {c.p, 99, 1000, 66}};
    Tensor saved = empty({tokens, width}, dtype, cpu), logs = empty({tokens, c.heads}, sums, cpu);
    host.causal_attention(a, saved, logs);
    Tensor saved_y = exact(saved, c.skip), saved_lse = exact(logs);
    expect_equal(
        [&](Backend& on) {
          Tensor y = sevens(saved.shape(), dtype, c.skip), lse = sevens(logs.shape(), sums);
          Tensor dqkv = sevens(qkv.shape(), dtype, c.skip);
          on.causal_attention(a, y, lse);
          on.causal_attention_backward(a, saved_y, saved_lse, dy, dqkv);
          return Tensors{y, lse, dqkv};
        },
        3 * within);
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

TEST_P(CudaAttention, AnyAddress) {
  expect_the_cpus({.sequences = 1, .time = 33, .heads = 2, .dim = 16, .skip = 1});
}

// Scores far from zero neither overflow nor lose the largest weight.
TEST_P(CudaAttention, LargeScores) {
  Tensor qkv = exact(randn({70, 12}, dtype, 5, 30));
  expect_equal(
      [&](Backend& on) {
        Tensor y = sevens({70, 4}, dtype), lse = sevens({70, 1}, sums);
        on.causal_attention({qkv, 70, 4, {}}, y, lse);
        return Tensors{y, lse};
      },
      std::max(within, 1000 * tolerance(sums)));
}

TEST_P(CudaAttention, NoSequences) {
  int64_t before = cuda::emulation::launches();
  expect_the_cpus({.sequences = 0, .time = 8, .heads = 2, .dim = 4});
  EXPECT_EQ(cuda::emulation::launches(), before);
}

TEST_P(CudaAttention, RefusesHeadsThatDoNotFit) {
  Tensor y = empty({2, 257}, dtype, cpu), lse = empty({2, 1}, sums, cpu);
  Tensor qkv = empty({2, 3 * 257}, dtype, cpu);
  std::vector<std::string> parts = {"causal_attention", "head size 257", "at most 256 on cuda"};
  Attention a{qkv, 2, 257, {}};
  expect_error([&] { b.causal_attention(a, y, lse); }, parts, Exit::config);
  expect_error([&] { b.causal_attention_backward(a, y, lse, y, qkv); }, parts, Exit::config);
}

}  // namespace
}  // namespace triax::test
