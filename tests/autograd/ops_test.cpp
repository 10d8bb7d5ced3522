// Every op: gradients against central differences in f64, and one error with its message.
// Values against naive loops stand in tests/core, per kernel; here where an op adds to its kernel.
#include "triax/autograd/ops.h"

#include "tests/support/expect_error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"

namespace triax {
namespace {

using namespace test;

Tensor ids(std::vector<int32_t> v) { return from_host(v, {int64_t(v.size())}, test_device()); }
Tensor positive(const Shape& s, uint64_t key) {
  NoGrad guard;
  Tensor x = filled(s, key);
  return x * x + 0.3;
}

class OpsTest : public ::testing::Test {
 protected:
  // No graph outlives its test.
  void TearDown() override { EXPECT_EQ(autograd::live_nodes(), 0); }
};

template <class F> void check_unary(const char* name, F op, bool positive_only = false) {
  SCOPED_TRACE(name);
  Tensor x = positive_only ? positive({3, 5}, 1) : filled({3, 5}, 1, f64, 1.0);
  gradcheck([&](const Tensors& in) { return op(in[0]); }, {x});
  gradcheck([&](const Tensors& in) { return op(transpose(in[0], 0, 1)); }, {x});  // strided
  EXPECT_EQ(op(zeros({0, 3}, f32, test_device())).numel(), 0);
}

TEST_F(OpsTest, UnaryGradients) {
  check_unary("neg", [](const Tensor& x) { return -x; });
  check_unary("exp", [](const Tensor& x) { return exp(x); });
  check_unary(
      "log", [](const Tensor& x) { return log(x); }, true);
  check_unary(
      "sqrt", [](const Tensor& x) { return sqrt(x); }, true);
  check_unary("tanh", [](const Tensor& x) { return tanh(x); });
  check_unary("sigmoid", [](const Tensor& x) { return sigmoid(x); });
  check_unary("abs", [](const Tensor& x) { return abs(x); });
  check_unary("softplus", [](const Tensor& x) { return softplus(x); });
  check_unary("relu", [](const Tensor& x) { return relu(x); });
  check_unary("gelu", [](const Tensor& x) { return gelu(x); });
  check_unary("gelu_erf", [](const Tensor& x) { return gelu_erf(x); });
  check_unary("silu", [](const Tensor& x) { return silu(x); });
}

// Ops take any strides: of a view they make what they make of its copy.
TEST_F(OpsTest, StridedInputsAreReadAsTheyAre) {
  using Op = std::function<Tensor(const Tensor&)>;
  NoGrad guard;
  Tensor x = positive({4, 3, 6}, 7), at = zeros({4, 2, 3}, i32, test_device()),
         mask = zeros({3}, u8, test_device());
  Tensor w = filled({5, 3}, 8), row = filled({3}, 9);
  const std::pair<const char*, Op> ops[] = {
      {"sum", [](const Tensor& v) { return sum(v, {0}); }},
      {"sum of the last", [](const Tensor& v) { return sum(v, {2}); }},
      {"mean", [](const Tensor& v) { return mean(v, {1}, Keep::yes); }},
      {"max", [](const Tensor& v) { return max(v, {0}); }},
      {"max of all", [](const Tensor& v) { return max(v); }},
      {"add", [&](const Tensor& v) { return v + row; }},
      {"log", [](const Tensor& v) { return log(v); }},
      {"cast", [](const Tensor& v) { return cast(v, f32); }},
      {"masked_fill", [&](const Tensor& v) { return masked_fill(v, mask, 2); }},
      {"softmax", [](const Tensor& v) { return softmax(v); }},
      {"log_softmax", [](const Tensor& v) { return log_softmax(v); }},
      {"concat",
       [](const Tensor& v) {
         return concat({v, v}, 1);
       }},
      {"index_select",
       [](const Tensor& v) {
         return index_select(v, 1, ids({1, 0}));
       }},
      {"gather", [&](const Tensor& v) { return gather(v, at); }},
      {"rms_norm", [&](const Tensor& v) { return rms_norm(v, row); }},
      {"mse", [](const Tensor& v) { return mse(v, v * 2); }},
      {"matmul", [&](const Tensor& v) { return matmul(v, transpose(w, 0, 1)); }}};
  for (auto& [name, op] : ops) {
    SCOPED_TRACE(name);
    for (const Tensor& view : {narrow(x, 2, 1, 3), transpose(narrow(x, 2, 2, 2), 1, 2)}) {
      if (view.size(1) != at.size(1) && std::string(name) == "gather") continue;
      Tensor of_view = op(view), of_copy = op(view.contiguous());
      // cuBLASLt may add up other layouts in another order.
      if (on_gpu() && std::string(name) == "matmul") expect_near(of_view, values(of_copy), 1e-12);
      else expect_bitwise(of_view, of_copy);
    }
  }
}

TEST_F(OpsTest, BinaryGradientsBroadcastBothWays) {
  std::vector<std::pair<Shape, Shape>> shapes = {{{2, 3}, {2, 3}}, {{2, 3}, {3}},    {{2, 1}, {3}},
                                                 {{3}, {2, 3}},    {{1, 3}, {2, 1}}, {{}, {2, 2}}};
  for (auto& [sa, sb] : shapes) {
    SCOPED_TRACE(str(sa) + " with " + str(sb));
    Tensors in{filled(sa, 1), positive(sb, 2)};
    gradcheck([](const Tensors& t) { return t[0] + t[1]; }, in);
    gradcheck([](const Tensors& t) { return t[0] - t[1]; }, in);
    gradcheck([](const Tensors& t) { return t[0] * t[1]; }, in);
    gradcheck([](const Tensors& t) { return t[0] / t[1]; }, in);
  }
  gradcheck([](const Tensors& t) { return 2.0 * (t[0] + 1) / 3 - 0.5; }, {filled({4}, 3)});
}

TEST_F(OpsTest, NumbersStandOnEitherSide) {
  Tensor x = from_host<double>(std::vector<double>{0.5, -2}, {2}, test_device());
  expect_near(1 + x, {1.5, -1}, 0);
  expect_near(1 - x, {0.5, 3}, 0);
  expect_near(3 * x, {1.5, -6}, 0);
  expect_near(1 / x, {2, -0.5}, 0);
  gradcheck([](const Tensors& t) { return (1 - t[0]) * (2 + t[0]) + 1 / t[0]; },
            {positive({4}, 3)});
}

TEST_F(OpsTest, PermuteOrdersDims) {
  Tensor x = filled({2, 3, 4, 5}, 1);
  std::vector<double> in = values(x);
  for (const Dims& order :
       {Dims{3, 1, 0, 2}, Dims{1, 2, 3, 0}, Dims{0, 1, 2, 3}, Dims{-1, 0, -2, 1}}) {
    SCOPED_TRACE(join(order, " "));
    Tensor y = permute(x, order);
    EXPECT_EQ(y.storage(), x.storage());
    int64_t sizes[] = {2, 3, 4, 5}, strides[] = {60, 20, 5, 1};
    auto dim = [&](int i) { return size_t((order[size_t(i)] + 4) % 4); };
    ASSERT_EQ(y.shape(), Shape({sizes[dim(0)], sizes[dim(1)], sizes[dim(2)], sizes[dim(3)]}));
    std::vector<double> expected;
    for (int64_t i = 0; i < 120; ++i) {  // in y's order: from its last dim to its first
      int64_t left = i, at = 0;
      for (int d = 3; d >= 0; --d)
        at += left % sizes[dim(d)] * strides[dim(d)], left /= sizes[dim(d)];
      expected.push_back(in[size_t(at)]);
    }
    expect_near(y.contiguous(), expected, 0);
    Tensor factors = clone(y);  // gradcheck changes x
    gradcheck([&](const Tensors& t) { return permute(t[0], order) * factors; }, {x});
  }
  for (const Dims& order : {Dims{0, 1, 2}, Dims{0, 1, 2, 2}, Dims{0, 1, 2, 4}, Dims{0, 0, 1, -4}})
    expect_error([&] { permute(x, order); }, {"permute", join(order, ", "), "each of 4 dims once"});
}

TEST_F(OpsTest, BinaryRefusesWhatDoesNotFit) {
  Tensor a = zeros({2, 3}, f32, test_device());
  expect_error([&] { a + zeros({4}, f32, test_device()); }, {"add", "[2, 3]", "[4]", "broadcast"});
  expect_error([&] { a* zeros({3}, f64, test_device()); },
               {"mul", "f32", "f64", "expected one dtype"});
  expect_error([&] { a / zeros({3}, i32, test_device()); }, {"div", "i32"});
  expect_error([&] { exp(zeros({3}, i32, test_device())); }, {"exp", "i32", "float"});
  expect_error([&] { a + Tensor(); }, {"add", "undefined"});
}

TEST_F(OpsTest, WhereMaskedFillAndDropout) {
  Tensor mask = from_host<uint8_t>(std::vector<uint8_t>{1, 0, 0, 1, 1, 0}, {2, 3}, test_device());
  Tensor row = from_host<uint8_t>(std::vector<uint8_t>{1, 0, 1}, {3}, test_device());
  gradcheck([&](const Tensors& t) { return where(mask, t[0], t[1]); },
            {filled({2, 3}, 1), filled({3}, 2)});
  gradcheck([&](const Tensors& t) { return masked_fill(t[0], row, 7); }, {filled({2, 3}, 1)});
  expect_near(masked_fill(zeros({2, 3}, f32, test_device()), row, 7), {7, 0, 7, 7, 0, 7}, 0);
  gradcheck([&](const Tensors& t) { return dropout(t[0], {0.4f, 9, 5, 2}); }, {filled({4, 7}, 1)});
  expect_error([&] { where(zeros({2}, f32, test_device()), mask, mask); }, {"where", "u8"});
  expect_error([&] { masked_fill(zeros({3}, f32, test_device()), mask, 0); },
               {"masked_fill", "[2, 3]"});
  expect_error(
      [&] {
        dropout(zeros({2, 2}, f32, test_device()), {.p = 1.0f});
      },
      {"dropout", "p 1", "p < 1"});
}

TEST_F(OpsTest, ComparisonsMakeMasks) {
  using Mask = std::vector<uint8_t>;
  Tensor x = from_host(std::vector<float>{-1, 0.1f, 2, NAN}, {4}, test_device());
  Tensor of_each = from_host(std::vector<float>{0, 2}, {2, 1}, test_device());
  require_grad(x);
  EXPECT_EQ((x < 0.1).to_host<uint8_t>(), Mask({1, 0, 0, 0}));
  EXPECT_EQ((x > 0.1).to_host<uint8_t>(), Mask({0, 0, 1, 0}));
  EXPECT_EQ(equal(x, 0.1).to_host<uint8_t>(), Mask({0, 1, 0, 0}));
  EXPECT_EQ((x < of_each).to_host<uint8_t>(), Mask({1, 0, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(equal(ids({3, 0, 1}), 0).to_host<uint8_t>(), Mask({0, 1, 0}));
  expect_error([&] { (void)(x < cast(x, f64)); }, {"less", "one dtype"});
}

TEST_F(OpsTest, Reductions) {
  Tensor x = filled({2, 3, 4}, 1);
  for (auto& dims : std::vector<Dims>{{}, {0}, {1}, {-1}, {0, 2}, {1, 2}}) {
    gradcheck([&](const Tensors& t) { return sum(t[0], dims); }, {x});
    gradcheck([&](const Tensors& t) { return mean(t[0], dims, Keep::yes); }, {x});
    gradcheck([&](const Tensors& t) { return max(t[0], dims); }, {x});
  }
  EXPECT_EQ(sum(x, {1}).shape(), (Shape{2, 4}));
  EXPECT_EQ(sum(x, {1}, Keep::yes).shape(), (Shape{2, 1, 4}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  Tensor ties = from_host(std::vector<double>{3, 1, 3, 2}, {4}, test_device());
  require_grad(ties);
  backward(max(ties));
  expect_near(grad(ties), {0.5, 0, 0.5, 0}, 0);
  expect_error([&] { sum(x, {3}); }, {"dim 3", "[2, 3, 4]"});
  expect_error([&] { sum(x, {1, -2}); }, {"sum", "named twice"});
  expect_error([&] { mean(zeros({0}, f32, test_device())); }, {"mean", "no elements"});
}

TEST_F(OpsTest, ReductionsOfViews) {
  Tensor x = filled({4, 3, 2}, 1);
  for (const Tensor& view : {transpose(x, 0, 2), narrow(x, 2, 1, 1), narrow(x, 0, 1, 2)})
    for (auto& dims : std::vector<Dims>{{}, {0}, {1}, {-1}, {0, 2}}) {
      Tensor whole = view.contiguous();
      EXPECT_EQ(sum(view, dims).to_host<double>(), sum(whole, dims).to_host<double>());
      EXPECT_EQ(mean(view, dims).to_host<double>(), mean(whole, dims).to_host<double>());
      EXPECT_EQ(max(view, dims).to_host<double>(), max(whole, dims).to_host<double>());
    }
  gradcheck([](const Tensors& t) { return sum(transpose(t[0], 0, 2), {1}); }, {x});
  gradcheck([](const Tensors& t) { return max(narrow(t[0], 2, 1, 1), {0}); }, {x});
}

TEST_F(OpsTest, Shapes) {
  Tensor x = filled({2, 3, 4}, 1);
  gradcheck([](const Tensors& t) { return transpose(t[0], 0, 2); }, {x});
  gradcheck([](const Tensors& t) { return reshape(transpose(t[0], 0, 2), {6, -1}); }, {x});
  gradcheck([](const Tensors& t) { return view(t[0], {6, -1}); }, {x});
  gradcheck([](const Tensors& t) { return narrow(t[0], 1, 1, 2); }, {x});
  gradcheck(
      [](const Tensors& t) {
        Tensors s = split(t[0], -1, {1, 0, 3});
        return concat({s[2] * s[2], s[0], s[2], t[0]}, -1);
      },
      {x});
  expect_error([&] { split(x, 1, {1, 1}); }, {"split: lengths 1, 1 of dim 1", "a sum of 3"});
  gradcheck([](const Tensors& t) { return expand(t[0], {5, 2, 3}); }, {filled({2, 1}, 1)});
  gradcheck(
      [](const Tensors& t) {
        return concat({t[0], t[1], t[0]}, 1);
      },
      {filled({2, 3}, 1), filled({2, 2}, 2)});
  gradcheck(
      [](const Tensors& t) {
        return stack({t[0], transpose(t[1], 0, 1)}, 1);
      },
      {filled({2, 3}, 1), filled({3, 2}, 2)});
  gradcheck([](const Tensors& t) { return cast(cast(t[0], f64), f64); }, {x});
  EXPECT_EQ(cast(ids({1}), bf16).dtype(), bf16);
  expect_error([&] { view(x, {5, 5}); }, {"view", "24 elements", "[5, 5]"});
  expect_error([&] { view(transpose(x, 0, 1), {24}); }, {"view", "not contiguous"});
  expect_error([&] { narrow(x, 1, 2, 2); }, {"narrow", "2 elements from 2", "[0, 3)"});
  expect_error([&] { concat({x, filled({2, 4}, 1)}, 0); }, {"concat", "[2, 4]"});
  expect_error([&] { cast(x, i32); }, {"cast", "i32"});
}

TEST_F(OpsTest, SwigluIsSiluTimesTheOther) {
  Tensor both = filled({3, 8}, 1, f64, 1.0);
  auto op = [](const Tensors& t) {
    Tensors s = split(t[0], 1, {4, 4});
    return swiglu(s[0], s[1]);
  };
  gradcheck(op, {both});
  NoGrad guard;
  Tensors s = split(both, 1, {4, 4});
  expect_near(op({both}), values(silu(s[0]) * s[1]), 1e-14);
  expect_error([&] { swiglu(both, s[0]); }, {"swiglu: shapes [3, 8] and [3, 4]"});
}

TEST_F(OpsTest, Indexing) {
  Tensor x = filled({3, 4}, 1);
  gradcheck([](const Tensors& t) { return index_select(t[0], 1, ids({3, 0, 3})); }, {x});
  gradcheck([](const Tensors& t) { return index_select(t[0], 0, ids({2, 2, 1, 0})); }, {x});
  Tensor at = from_host(std::vector<int64_t>{1, 1, 0, 3, 2, 2}, {3, 2}, test_device());
  gradcheck([&](const Tensors& t) { return gather(t[0], at); }, {x});
  gradcheck([](const Tensors& t) { return embedding(ids({2, 0, 2, 1}), t[0]); }, {x});
  if (!on_gpu())
    expect_data_error(
        [&] {
          embedding(ids({0, 1, 3}), x);
        },
        {"embedding", "value 3 at position 2", "0 to 2"});
  else expect_near(narrow(embedding(ids({0, 1, 3}), x), 0, 2, 1), {0, 0, 0, 0}, 0);
  expect_data_error([&] { index_select(x, 1, ids({-1})); },
                    {"value -1 at position 0; expected 0 to 3"});
  expect_data_error(
      [&] {
        gather(x, from_host(std::vector<int32_t>{4, 0, 0}, {3, 1}, test_device()));
      },
      {"value 4"});
  expect_error([&] { embedding(zeros({2}, f32, test_device()), x); }, {"index", "i32 or i64"});
}

TEST_F(OpsTest, RowsAndNorms) {
  gradcheck([](const Tensors& t) { return softmax(t[0]); }, {filled({2, 3, 5}, 1)});
  gradcheck([](const Tensors& t) { return log_softmax(t[0]); }, {filled({4, 5}, 1)});
  Tensors norm{filled({4, 6}, 1), filled({6}, 2), filled({6}, 3)};
  gradcheck([](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); }, norm);
  gradcheck([](const Tensors& t) { return rms_norm(t[0], t[1]); }, {norm[0], norm[1]});
  // Onto a gradient that lies there already (the residual), and with one weight for both roles.
  gradcheck([](const Tensors& t) { return t[0] + layer_norm(t[0], t[1], t[2]); }, norm);
  gradcheck([](const Tensors& t) { return layer_norm(t[0], t[1], t[1]); }, {norm[0], norm[1]});
  expect_error([&] { layer_norm(norm[0], filled({5}, 1), norm[2]); }, {"layer_norm", "[5]", "[6]"});
  expect_error([&] { softmax(zeros({}, f32, test_device())); }, {"softmax", "at least one dim"});
}

TEST_F(OpsTest, CrossEntropyAndMse) {
  Tensor targets = ids({1, 4, 0, -1, 2});
  for (double smoothing : {0.0, 0.1})
    for (auto reduction :
         {CrossEntropyOptions::Reduction::mean, CrossEntropyOptions::Reduction::sum})
      gradcheck(
          [&](const Tensors& t) {
            return cross_entropy(t[0], targets, {.reduction = reduction, .smoothing = smoothing});
          },
          {filled({5, 6}, 1)});
  gradcheck([](const Tensors& t) { return mse(t[0], t[1]); },
            {filled({3, 2}, 1), filled({3, 2}, 2)});
  Tensor none = cross_entropy(filled({2, 3}, 1), ids({-1, -1}));
  EXPECT_EQ(none.item(), 0);
  EXPECT_EQ(cross_entropy(filled({2, 3}, 1), ids({255, 255}), {.ignore = 255}).item(), 0);
  if (!on_gpu())
    expect_data_error(
        [] {
          cross_entropy(filled({2, 3}, 1), ids({0, 3}));
        },
        {"cross_entropy: value 3 at position 1; expected 0 to 2, or -1 for what counts nothing"});
  expect_error([] { cross_entropy(filled({2, 3}, 1), ids({0})); }, {"cross_entropy", "[rows]"});
  expect_error([] { cross_entropy(filled({2, 3}, 1), ids({0, 1}), {.ignore = 1}); }, {"ignore 1"});
  expect_error([] { mse(zeros({2}, f32, test_device()), zeros({3}, f32, test_device())); },
               {"mse", "[2]", "[3]"});
}

// Moved-in logits are overwritten by their gradient; shared ones are left alone.
TEST_F(OpsTest, CrossEntropyTakesLogitsByMove) {
  Tensor x = filled({4, 8}, 1), t = ids({1, 2, 3, 4});
  require_grad(x);
  Tensor kept = x * 1.0, before = clone(kept.detach());
  backward(cross_entropy(kept, t));
  expect_bitwise(kept.detach(), before);
  Tensor shared_grad = clone(grad(x));
  grad(x) = {};
  Tensor logits = x * 1.0;
  const void* bytes = logits.data();
  Tensor seen;
  Tensor looked_at = record("look", logits.detach(), {logits}, [&](const Tensor& dy) {
    seen = dy;
    return Tensors{dy};
  });
  logits = {};
  Tensor loss = cross_entropy(std::move(looked_at), t);
  backward(loss);
  EXPECT_EQ(seen.data(), bytes);
  expect_bitwise(grad(x), shared_grad);
}

// With a known seed forward overwrites logits that nobody else holds; whatever backward is given
// then, the gradient is as without.
TEST_F(OpsTest, CrossEntropyKnowsItsSeed) {
  Tensor x = filled({4, 8}, 1, f32), t = ids({1, 2, -1, 4}), out;
  require_grad(x);
  Tensor seed = full({}, 0.25, f32, test_device()), third = full({}, 0.75, f32, test_device());
  auto run = [&](Tensor logits, const CrossEntropyOptions& o, const Tensor& dy) {
    grad(x) = {};
    Tensor loss = cross_entropy(std::move(logits), t, o);
    out = loss.detach();
    backward(loss, dy);
    return clone(grad(x));
  };
  for (auto reduction :
       {CrossEntropyOptions::Reduction::mean, CrossEntropyOptions::Reduction::sum}) {
    CrossEntropyOptions plain{.reduction = reduction}, ahead{.reduction = reduction, .seed = seed};
    Tensor expected = run(x * 1.0, plain, seed), loss = out;
    expect_bitwise(run(x * 1.0, ahead, seed), expected);
    expect_bitwise(out, loss);
    expect_near(run(x * 1.0, ahead, third), values(expected * 3.0), 1e-6);
    Tensor kept = x * 1.0, before = clone(kept.detach());
    expect_bitwise(run(kept, ahead, seed), expected);
    expect_bitwise(kept.detach(), before);
    CrossEntropyOptions wide{.reduction = reduction, .seed = seed.to(f64)};
    expect_bitwise(run(x * 1.0, wide, seed), expected);
  }
  CrossEntropyOptions ahead{.seed = seed};
  Tensor logits = x * 1.0, view = logits.detach(), before = clone(view);
  {
    NoGrad guard;
    cross_entropy(view.detach(), t, ahead);
  }
  expect_bitwise(view, before);
  view = {};
  auto* bytes = static_cast<const float*>(logits.data());
  Tensor loss = cross_entropy(std::move(logits), t, ahead);
  if (!on_gpu()) {
    EXPECT_NE(*bytes, values(before)[0]) << "forward has left the logits alone";
  }
}

}  // namespace
}  // namespace triax
