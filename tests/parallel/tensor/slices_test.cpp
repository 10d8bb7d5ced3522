// Products of split layers made slice by slice: the same bits on any number of ranks.
// correctness 58.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "autograd/backward.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/tensor/tensor_parallel.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax::parallel {
namespace {

using namespace test;

TEST(Slices, LimitsAndMistakesAreAlikeOnAnyNumberOfRanks) {
  constexpr int slices = 4;
  auto products = [&](int ranks, double large) {
    std::vector<double> all;
    std::mutex lock;
    run_ranks(ranks, [&](Communicator& comm) {
      Slices s{.count = slices};
      s.set_seed(1);
      TensorParallel tp(comm, {.slices = s});
      Tensor w = full({8 / ranks, 3}, large / 2, f32, cpu), x = full({2, 3}, 1, f32, cpu);
      require_grad(x);
      Tensor y =
          tp.product_in(x, w);  // each slice brings two rows: `large` for every element of dx
      backward(y, full(y.shape(), 1, f32, cpu));
      auto dx = values(grad(x));
      std::lock_guard guard(lock);
      all.insert(all.end(), dx.begin(), dx.end());
    });
    return all;
  };
  double limit = 0x1p16 / slices;  // of what a slice brings
  for (int ranks : {1, 2, 4}) {
    for (double v : products(ranks, 0.9 * limit)) EXPECT_FLOAT_EQ(float(v), float(3.6 * limit));
    for (double v : products(ranks, limit)) EXPECT_TRUE(std::isnan(v)) << ranks;
  }
}

/// What the ranks have of two split layers and their gradients, after two steps that accumulate.
std::map<std::string, std::vector<double>> two_layers(int ranks, int64_t tokens, int64_t features,
                                                      DType dtype) {
  constexpr int64_t inputs = 37;
  std::map<std::string, std::vector<double>> found;
  std::mutex lock;
  run_ranks(ranks, [&](Communicator& comm) {
    Slices s{.count = 4};
    s.set_seed(1);
    TensorParallel tp(comm, {.slices = s});
    int64_t mine = features / ranks, first = comm.rank() * mine;
    Tensor x = filled({tokens, inputs}, 1, dtype);
    Tensor in = clone(filled({features, inputs}, 2, dtype).narrow(0, first, mine));
    Tensor out = clone(filled({inputs, features}, 3, dtype).narrow(1, first, mine));
    for (auto* leaf : {&x, &in, &out}) require_grad(*leaf);
    Tensor y;
    for (uint64_t step : {4, 5}) {
      y = tp.product_out(tp.product_in(x, in), out);
      backward(y, filled(y.shape(), step, dtype));
    }
    std::lock_guard guard(lock);
    for (int slot = comm.rank(); slot < 4; slot += ranks) {  // those of all ranks are alike
      found[fmt::format("y {}", slot)] = values(y);
      found[fmt::format("dx {}", slot)] = values(grad(x));
    }
    auto din = values(grad(in)), dout = values(grad(out).transpose(0, 1).contiguous());
    for (int64_t i = 0; i < mine * inputs; ++i) {
      std::string at = fmt::format("{}", first * inputs + i);
      found["din " + at] = {din[size_t(i)]}, found["dout " + at] = {dout[size_t(i)]};
    }
  });
  return found;
}

// Kernels take other ways through one row and one column than through many.
TEST(Slices, OneRowAndOneFeatureEachHaveTheSameBitsOnAnyNumberOfRanks) {
  for (DType dtype : {f32, bf16})
    for (int64_t tokens : {1, 3})
      for (int64_t features : {4, 8})
        for (int ranks : {2, 4})
          EXPECT_EQ(two_layers(ranks, tokens, features, dtype),
                    two_layers(1, tokens, features, dtype))
              << tokens << " rows, " << features << " features, " << ranks << " ranks";
}

TEST(Slices, ProductsCheckWhatTheyAreGiven) {
  auto comm = single_rank();
  TensorParallel tp(*comm, {.slices = {.count = 2}});
  Tensor x = zeros({2, 4}, f32, cpu);
  expect_error([&] { tp.product_in(x, zeros({4, 4}, bf16, cpu)); }, {"one float dtype"});
  expect_error(
      [&] {
        tp.product_out(x, zeros({4, 6}, f32, cpu));
      },
      {"expected [rows, in] and [out, in]"});
  expect_error(
      [&] {
        tp.product_in(x, zeros({3, 4}, f32, cpu));
      },
      {"[3, 4] in 2 slices of dim 0; expected a multiple of 2"});
  expect_error(
      [&] {
        tp.product_out(zeros({2, 3}, f32, cpu), zeros({4, 3}, f32, cpu));
      },
      {"[4, 3] in 2 slices of dim 1; expected a multiple of 2"});
}

}  // namespace
}  // namespace triax::parallel
