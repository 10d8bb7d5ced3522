// Products of split layers made slice by slice: the same bits on any number of ranks.
// correctness 58.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/scopes.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/tensor/linear.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel::slices_test {

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
      // Each slice brings two rows: `large` for every element of dx.
      Tensor y = linear(tp.enter(x), w);
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
    autograd::RowsAlike alike(true);
    int64_t mine = features / ranks, first = comm.rank() * mine;
    Tensor x = filled({tokens, inputs}, 1, dtype);
    Tensor in = clone(filled({features, inputs}, 2, dtype).narrow(0, first, mine));
    Tensor out = clone(filled({inputs, features}, 3, dtype).narrow(1, first, mine));
    for (auto* leaf : {&x, &in, &out}) require_grad(*leaf);
    Tensor y;
    for (uint64_t step : {4, 5}) {
      y = tp.leave_product(linear(tp.enter(x), in), out, {});
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

TEST(Slices, SumsTheyCannotMakeAreRefused) {
  auto comm = single_rank();
  TensorParallel tp(*comm, {.slices = {.count = 2}});
  Tensor x = zeros({2, 4}, f32, cpu), w = zeros({4, 4}, f32, cpu);
  require_grad(x);
  auto back = [&](const std::function<Tensor(const Tensor&)>& use) {
    return [&, use] { backward(sum(use(tp.enter(x)))); };
  };
  EXPECT_NO_THROW(back([&](auto& y) { return linear(y, w) + linear(y, w); })());
  expect_config_error(back([&](auto& y) { return y * y; }),
                      {"bitwise with tp-slices=2: mul sums features", "Take --tp 1"});
  expect_config_error(back([&](auto& y) { return linear(y, w) + linear(y, w) + linear(y, w); }),
                      {"linear is use 3 of what one `enter` returns; expected at most 2"});
  expect_config_error(back([&](auto& y) { return linear(w, y); }),  // a sum over rows
                      {"bitwise with tp-slices=2: linear sums features"});
  expect_config_error([&] { tp.leave(x); }, {"bitwise with tp-slices=2: leave sums features"});
  expect_error(back([&](auto& y) {
                 return linear(y, zeros({3, 4}, f32, cpu));
               }),
               {"3 features in 2 terms; expected a multiple"});
  expect_error(
      [&] {
        tp.leave_product(zeros({2, 3}, f32, cpu), zeros({4, 3}, f32, cpu), {});
      },
      {"3 features in 2 terms; expected a multiple"});
}

// In fp16, what tensor-parallel ranks have of a sum may be too large for fp16 where the sum is not:
// split layers give the values and gradients of one rank, which rounds sums once.

constexpr int64_t rows = 12, width = 12, features = 12;  // 1, 2, 3, 4 and 6 ranks divide them

/// Integers, whose sums are exact in f32 in any order.
Tensor integers(const Shape& shape, const std::function<int(int64_t row, int64_t column)>& value) {
  std::vector<double> v;
  int64_t columns = shape.back();
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(value(i / columns, i % columns));
  return from_host(v, shape, cpu).to(f16);
}

/// 80 in the first half of the features, about -80 in the second.
int opposed(int64_t feature, int64_t other) {
  return feature < features / 2 ? 80 : -80 + int(feature + other) % 3;
}

/// x, and its gradient after all of `again`, collected in fp16.
struct Input {
  Tensor leaf, x;

  explicit Input(const Tensor& values) : leaf(values.to(f32)) {
    require_grad(leaf);
    x = cast(leaf, f16);
  }
  Tensor gradient() const { return grad(leaf); }
};

void set(nn::Module& m, const std::string& name, const Tensor& values) {
  for (auto* p : m.parameters())
    if (p->name == name) copy_(p->value.detach(), values);
}

Tensor gradient_of(nn::Module& m, const std::string& name) {
  for (auto* p : m.parameters())
    if (p->name == name) return grad(p->value);
  return {};
}

/// The part of `x` that this rank has: of `dim`.
Tensor share(const TensorParallel& tp, const Tensor& x, int dim) {
  int64_t n = x.size(dim) / tp.size();
  return x.narrow(dim, tp.rank() * n, n).contiguous();
}

Tensor rows_of(const TensorParallel& tp, const Tensor& x) {
  return tp.sequence() ? share(tp, x, 0) : x;
}

void on_all(const std::function<void(Communicator&, const TensorParallel&)>& body) {
  int64_t nodes = autograd::live_nodes();  // of what the ranks compare with
  for (int ranks : {1, 2, 3, 4, 6})
    for (bool sequence : {false, true}) {
      run_ranks(ranks, [&](Communicator& comm) {
        SCOPED_TRACE(fmt::format("rank {} of {}, sequence {}", comm.rank(), ranks, sequence));
        body(comm, TensorParallel(comm, {.sequence = sequence}));
      });
      EXPECT_EQ(autograd::live_nodes(), nodes);
    }
}

// Twice the same input, as gate and up of an MLP may have it: the second gradient is added to the
// first, and rounded then.
TEST(HalfSums, GradientsOnTheWayIn) {
  Tensor w = integers({features, width}, opposed);
  Tensor values_of_x = integers({rows, width}, [](auto i, auto j) { return int(i + j) % 5 - 2; });
  Tensor dy = integers({rows, features}, [](auto i, auto) { return 1000 + int(i); });
  Input whole(values_of_x);
  backward(linear(whole.x, w) + linear(whole.x, w) * 0.5, dy);
  for (double v : values(whole.gradient())) ASSERT_TRUE(std::isfinite(v) && v != 0);

  on_all([&](Communicator&, const TensorParallel& tp) {
    ColumnLinear layer(width, features, tp, {.bias = false});
    layer.materialize(cpu, f16, 1);
    set(layer, "weight", share(tp, w, 0));
    Input mine(rows_of(tp, values_of_x));
    backward(layer(mine.x) + layer(mine.x) * 0.5, share(tp, dy, 1));
    expect_bitwise(mine.gradient(), rows_of(tp, whole.gradient()));
  });
}

TEST(HalfSums, ValuesAndBiasesOnTheWayOut) {
  Tensor w = integers({width, features}, [](auto i, auto j) { return opposed(j, i); });
  Tensor b = integers({width}, [](auto, auto j) { return 1 + 2 * int(j % 2); });
  Tensor values_of_x = integers({rows, features}, [](auto i, auto) { return 1000 + int(i); });
  Tensor dy = integers({rows, width}, [](auto, auto) { return 8192; });  // twelve are too many
  Tensor weight = clone(w), bias = clone(b);
  require_grad(weight), require_grad(bias);
  Tensor expected = linear(values_of_x, weight, bias);
  backward(expected, dy);
  expected = expected.detach();
  for (double v : values(expected)) ASSERT_TRUE(std::isfinite(v));

  on_all([&](Communicator& comm, const TensorParallel& tp) {
    RowLinear layer(features, width, tp);
    layer.materialize(cpu, f16, 1);
    set(layer, "weight", share(tp, w, 1));
    set(layer, "bias", b);
    Tensor y = layer(share(tp, values_of_x, 1));
    EXPECT_EQ(y.dtype(), f16);
    expect_bitwise(y, rows_of(tp, expected));
    backward(y, rows_of(tp, dy));
    Tensor db = gradient_of(layer, "bias");
    if (tp.sequence()) comm.all_reduce(db).wait();  // as DataParallel does it
    expect_bitwise(db, grad(bias));
    expect_bitwise(gradient_of(layer, "weight"), share(tp, grad(weight), 1));
  });
}

// A layer of one's own, whose parts are rounded already: at least their sum is made in fp32, also
// where a transport adds in the dtype of what it sends.
TEST(HalfSums, PartsOfOtherLayersAreSentInFp32) {
  on_all([](Communicator& comm, const TensorParallel& tp) {
    Tensor part = integers({rows, 2}, [&](auto, auto) { return tp.rank() ? 1 : 2048; });
    comm.reset_ledger();
    Tensor y = tp.leave(part), sum = full(y.shape(), 2047 + tp.size(), f32, cpu);
    expect_bitwise(y, sum.to(f16));
    double n = tp.size(), share = (n - 1) / n * double(part.numel());
    EXPECT_NEAR(comm.ledger().total().bytes, 4 * (tp.sequence() ? 1 : 2) * share, 1e-9);
  });
}

}  // namespace triax::parallel::slices_test
