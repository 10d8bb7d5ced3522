// Sizes that only a real GPU does in little time: more than 2^31 elements, grids of more than 65535
// blocks a side, and the shapes of GPT-2. The GPU made of CPU threads skips them.
#include "tests/on_gpu/on.h"
#include "triax/core/cpu/levels.h"
#include "triax/core/functors/binary.h"
#include "triax/core/functors/unary.h"
#include "triax/core/shared/attention.h"

namespace triax::test {
namespace {

class Large : public testing::Test {
 protected:
  void SetUp() override {
    if (!on_real_gpu()) GTEST_SKIP() << "a GPU is needed";
  }
  /// What `run` makes on the GPU is what it makes on the CPU.
  template <class F> static void expect_equal(DType dtype, double within, F run) {
    On there(test_device(), dtype), here(cpu, dtype);
    run(there);
    run(here);
    Tensors got = there.finish(), expected = here.finish();
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "output " << i);
      expect_near(got[i], doubles(expected[i]), within * allowed(got[i].dtype(), dtype));
    }
  }
};

TEST_F(Large, MoreThanTwoToThe31Elements) {
  constexpr int64_t n = (int64_t{1} << 31) + 1000, width = 1000, rows = n / width;
  Backend& gpu = backend(test_device());
  Tensor x = full({n}, 1, bf16, test_device()), y = zeros_like(x);
  fill_(x.narrow(0, n - 1, 1), 3);
  auto end = [](const Tensor& of) { return of.narrow(0, of.numel() - 2, 2); };
  copy_(y, x);
  expect_near(end(y), {1, 3}, 0);
  gpu.binary(binary_id<functors::Add>(), x, x, y);
  expect_near(end(y), {2, 6}, 0);
  gpu.unary(unary_id<functors::Neg>(), x, y);
  expect_near(end(y), {-1, -3}, 0);
  gpu.accumulate(x, y);
  expect_near(end(y), {0, 0}, 0);
  Tensor squares = zeros({2}, f64, test_device());
  gpu.squares(x, squares);
  expect_near(squares, {double(n) + 8, 0}, 1e-9);
  Tensor in_rows = x.narrow(0, 0, rows * width).view({rows, width});
  Tensor out = y.narrow(0, 0, rows * width).view({rows, width});
  gpu.softmax(in_rows, out);
  expect_near(out.narrow(0, rows - 1, 1), std::vector<double>(width, 1e-3), 1e-5);
  copy_(out, in_rows.narrow(1, 0, 1).expand({rows, width}));
  expect_near(out.narrow(0, rows - 1, 1), std::vector<double>(width, 1), 0);
  gpu.dropout(in_rows, {0.5f, 1, 0, 0}, out);
  random::Mask mask{0.5f, 1, rows - 1, 0};
  EXPECT_EQ(out.narrow(0, rows - 1, 1).narrow(1, 7, 1).item(), mask.at(0, 7));
}

TEST_F(Large, ManyRows) {
  for (DType dtype : {f32, bf16})
    expect_equal(dtype, 10, [](On& on) {
      const int64_t rows = 200000, n = 8;
      Norm norm{on.in({rows, n}, 1),     on.in({n}, 2),           on.in({n}, 3),
                on.out({rows}, on.sums), on.out({rows}, on.sums), 1e-3};
      Tensor dy = on.in({rows, n}, 4);
      on.backend.norm(norm, on.out({rows, n}));
      on.backend.norm_backward(norm, dy, on.out({rows, n}), Write::set);
      on.backend.softmax(dy, on.out({rows, n}));
      on.backend.max(dy, on.out({rows, 1}));
      on.backend.copy(dy.transpose(0, 1), on.out({n, rows}));
      on.backend.matmul({on.in({rows, 3, 5}, 5), on.in({rows, 5, 2}, 6), on.out({rows, 3, 2})});
      CrossEntropy c{.logits = dy, .targets = on.ids({rows}, n), .vocab = n};
      Tensor stats = on.out({rows, 4}, on.sums);
      on.backend.cross_entropy_stats(c, stats);
      on.backend.cross_entropy_losses(c, stats, on.out({rows}, on.sums));
    });
}

TEST_F(Large, AttentionOfGpt2) {
  for (DType dtype : {bf16, f16, f32})
    expect_equal(dtype, 10, [](On& on) {
      const int64_t tokens = 2 * 1024, heads = 12, head = 64, time = 1024;
      Attention a{unpack(on.in({tokens, heads, 3, head}, 1)), time, Band::causal(time, time)};
      Tensor y = on.out({tokens, heads * head}), lse = on.out({tokens, heads}, on.sums);
      on.backend.attention(a, y, lse);
      on.backend.attention_backward(a, y, lse, on.in({tokens, heads * head}, 2),
                                    unpack(on.out({tokens, heads, 3, head})));
    });
}

TEST_F(Large, ProductsOfGpt2) {
  for (DType dtype : {bf16, f16, f32})
    expect_equal(dtype, 10, [](On& on) {
      Tensor x = on.in({1024, 768}, 1), up = on.in({3072, 768}, 2, 0.05), bias = on.in({3072}, 3);
      Tensor before = on.out({1024, 3072}), h = on.out({1024, 3072});
      on.backend.matmul({.a = x, .b = up.transpose(0, 1), .c = h, .bias = bias, .before = before});
      Tensor dy = on.in({1024, 3072}, 4, 0.3);
      on.backend.matmul({dy, up, on.out({1024, 768})});
      on.backend.matmul({dy.transpose(0, 1), x, on.out({3072, 768}, on.sums), Write::add});
    });
}

TEST_F(Large, TokensOfGpt2) {
  const int64_t rows = 256, width = 50304, vocab = 50257;
  auto loss = [=](On& on) {
    return CrossEntropy{
        .logits = on.in({rows, width}, 1, 2), .targets = on.ids({rows}, vocab), .vocab = vocab};
  };
  for (DType dtype : {bf16, f16, f32}) {
    // In f32, the sum of 50,257 logits around 0 is small beside them.
    expect_equal(dtype, dtype == f32 ? 100 : 10, [=](On& on) {
      on.backend.cross_entropy_stats(loss(on), on.out({rows, 4}, on.sums));
    });
    expect_equal(dtype, 10, [=](On& on) {
      CrossEntropy c = loss(on);
      Tensor stats = empty({rows, 4}, on.sums, on.device);
      Tensor scale = full({1}, 0.5, on.sums, on.device);
      on.backend.cross_entropy_stats(c, stats);
      on.backend.cross_entropy_losses(c, stats, on.out({rows}, on.sums));
      on.backend.cross_entropy_backward(c, stats, scale, on.out({rows, width}));
      Tensor ids = on.ids({8192}, vocab), table = on.in({width, 64}, 2), dy = on.in({8192, 64}, 3);
      on.backend.embedding(ids, table, 0, on.out({8192, 64}));
      on.backend.embedding_backward(ids, dy, 0, on.out({width, 64}, on.sums), Write::set);
    });
  }
}

}  // namespace
}  // namespace triax::test
