// The engine alone: graph shapes (plain, deferred, recomputed), hooks, offers, deep graphs, bucket
// views. correctness 3, 34, 35, 39, 41.
#include <functional>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"

namespace triax {
namespace {

using namespace test;

class EngineTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(autograd::live_nodes(), 0); }
};

TEST_F(EngineTest, TheGradientOfALeafIsItsOwn) {
  Tensor a = filled({3}, 1), b = filled({3}, 2);
  for (Tensor* x : {&a, &b}) require_grad(*x);
  backward(sum((a + b) * 2.));
  for (Tensor* x : {&a, &b}) copy_(grad(*x), grad(*x) * 0.5);
  for (Tensor* x : {&a, &b}) EXPECT_EQ(values(grad(*x)), std::vector<double>(3, 1));
  grad(a) = grad(b) = {};
  Tensor dy = full({3}, 1, f64, test_device()), constant = full({3}, 1, f64, test_device());
  backward(a + b, dy);
  fill_(dy, 10);  // the caller's
  backward(a + b, dy);
  EXPECT_EQ(values(grad(a)), std::vector<double>(3, 11));
  grad(a) = {};
  for (int pass = 0; pass < 2; ++pass) {
    backward(sum(record("own", a.detach() * 1., {a}, [=](auto&) { return Tensors{constant}; })));
    fill_(grad(a), 0);
  }
  EXPECT_EQ(values(constant), std::vector<double>(3, 1));
}

TEST_F(EngineTest, ARootGivesItsRuleTheDtypeThatItWants) {
  for (DType dtype : {f16, bf16}) {
    Tensor x = filled({2, 3}, 1, dtype), w = filled({4, 3}, 2, dtype);
    for (Tensor* t : {&x, &w}) require_grad(*t);
    auto product = [&](const Tensor& t) {
      return linear_to({empty({2, 4}, f32, test_device())}, t, w);
    };
    for (bool again : {false, true}) {
      grad(x) = grad(w) = {};
      backward(again ? recompute(product, x) : product(x), full({2, 4}, 1, f32, test_device()));
      Tensor expected = grad(x);
      grad(x) = grad(w) = {};
      backward(sum(product(x)));
      expect_bitwise(grad(x), expected, name(dtype));
    }
  }
}

std::shared_ptr<autograd::GradientView> view_of(const Tensor& x) {
  return std::make_shared<autograd::GradientView>(x);
}

using Fn = std::function<Tensor(const Tensor& x, const Tensor& w)>;
enum class Mode { plain, deferred, recomputed, recomputed_deferred, into_views };

/// d/dx and d/dw of sum(fn(x, w)^2) / 2 against central differences.
void check_graph(const char* name, const Fn& fn, Mode mode) {
  SCOPED_TRACE(std::string(name) + ", mode " + std::to_string(int(mode)));
  Tensor x = filled({3, 4}, 1), w = filled({4, 4}, 2);
  require_grad(x);
  require_grad(w);
  Tensor bucket = full({20}, 99, f64, test_device());  // left-over values: the first write must set
  if (mode == Mode::into_views) collect_in(w, view_of(bucket.narrow(0, 4, 16).view({4, 4})));
  int fired = 0;
  on_grad(w, [&] { ++fired; });
  bool deferred = mode == Mode::deferred || mode == Mode::recomputed_deferred;
  bool recomputed = mode == Mode::recomputed || mode == Mode::recomputed_deferred;
  auto value = [&] {
    Tensor y = recomputed ? recompute([&](const Tensor& t) { return fn(t, w); }, x) : fn(x, w);
    return 0.5 * sum(y * y);
  };
  autograd::Later later;
  backward(value(), {}, deferred ? &later : nullptr);
  if (deferred) {
    EXPECT_EQ(fired, 0);
    later.run();
  }
  EXPECT_EQ(fired, 1) << "on_grad must fire once, complete";
  NoGrad guard;
  for (auto* t : {&x, &w}) {
    auto slopes = values(grad(*t)), start = values(*t);
    Tensor flat = t->detach().view({t->numel()});
    for (int64_t i = 0; i < t->numel(); i += on_gpu() ? 3 : 1) {  // a GPU of threads is slow
      double old = start[size_t(i)], h = 1e-6;
      auto at = [&](double to) {
        fill_(flat.narrow(0, i, 1), to);
        return value().item();
      };
      double up = at(old + h), down = at(old - h);
      fill_(flat.narrow(0, i, 1), old);
      ASSERT_NEAR(slopes[size_t(i)], (up - down) / (2 * h), 1e-6) << (t == &x ? "x " : "w ") << i;
    }
  }
}

TEST_F(EngineTest, GraphShapes) {
  auto piece = [](const Tensor& w) { return [w](const Tensor& t) { return linear(t, w); }; };
  std::vector<std::pair<const char*, Fn>> graphs = {
      {"linear", [](auto& x, auto& w) { return linear(x, w); }},
      {"x + x", [](auto& x, auto& w) { return linear(x + x, w); }},
      {"x * x", [](auto& x, auto& w) { return linear(x * x, w); }},
      {"twice the weight", [](auto& x, auto& w) { return linear(linear(x, w), w); }},
      {"weight beside itself", [](auto& x, auto& w) { return linear(x, w + w * w); }},
      {"residual", [](auto& x, auto& w) { return x + linear(gelu(x), w); }},
      {"residual norm",
       [](auto& x, auto& w) {
         Tensor g = view(narrow(w, 0, 0, 1), {4}), b = view(narrow(w, 0, 1, 1), {4});
         Tensor h = x + linear(layer_norm(x, g, b), w);
         return h + linear(layer_norm(h, g, b), w);
       }},
      {"diamond",
       [](auto& x, auto& w) {
         Tensor h = linear(x, w);
         return gelu(h) + linear(h, w) + h;
       }},
      {"three branches",
       [](auto& x, auto& w) {
         Tensor h = gelu(x);
         return linear(h, w) + linear(h, w) + linear(h + h, w);
       }},
      {"unused branch",
       [](auto& x, auto& w) {
         Tensor h = gelu(x), unused = linear(h, w) * 3.0;
         return linear(h, w);
       }},
      {"weight behind a transpose, and gelu of it",
       [](auto& x, auto& w) {
         Tensor y = linear(x, gelu(w));
         return linear(y, transpose(w, 0, 1));
       }},
      {"weight made of a transpose, whose input has a gelu too",
       [](auto& x, auto& w) {
         Tensor h = linear(x, w), z = linear(gelu(h), w);
         return linear(z, matmul(transpose(h, 0, 1), x));
       }},
      {"weight computed by an op", [](auto& x, auto& w) { return linear(x, gelu(w)); }},
      {"strided view",
       [](auto& x, auto& w) {
         return linear(transpose(narrow(linear(x, w), 1, 1, 3), 0, 1), narrow(w, 1, 0, 3));
       }},
      {"nested recomputation",
       [=](auto& x, auto& w) {
         return recompute([=](const Tensor& t) { return gelu(recompute(piece(w), t)); },
                          linear(x, w));
       }},
      {"weight in two recomputed parts and outside",
       [=](auto& x, auto& w) {
         return linear(recompute(piece(w), gelu(recompute(piece(w), x))), w);
       }},
  };
  for (auto& [name, fn] : graphs)
    for (Mode mode : {Mode::plain, Mode::deferred, Mode::recomputed, Mode::recomputed_deferred,
                      Mode::into_views}) {
      // A weight that is itself computed cannot wait: the pass needs its gradient at once.
      bool computed = std::string(name).starts_with("weight ") &&
                      std::string(name) != "weight in two recomputed parts and outside";
      bool views = std::string(name) == "residual norm" || std::string(name) == "strided view";
      bool deferred = mode == Mode::deferred || mode == Mode::recomputed_deferred;
      if (deferred && (computed || views)) continue;
      check_graph(name, fn, mode);
    }
}

TEST_F(EngineTest, GradientsAddUpOverPasses) {
  Tensor w = filled({4, 4}, 2);
  require_grad(w);
  Tensor x = filled({3, 4}, 1);
  backward(sum(linear(x, w)));
  auto once = values(grad(w));
  backward(sum(linear(x, w)));
  auto twice = values(grad(w));
  for (size_t i = 0; i < once.size(); ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * once[i]);
}

TEST_F(EngineTest, AUsersGradientIsNeverWrittenInto) {
  Tensor x = filled({2, 3}, 1), dy = filled({2, 3}, 2), before = clone(dy);
  require_grad(x);
  backward(x + x, dy);
  expect_bitwise(dy, before);
  expect_near(grad(x), values(dy + dy), 0);
  Tensor held = grad(x), kept = clone(held);  // somebody holds the gradient: a second pass copies
  backward(x + x, dy);
  expect_bitwise(held, kept);
}

TEST_F(EngineTest, ABranchWithoutGradientDoesNotStopTheRest) {
  Tensor x = filled({3}, 1);
  require_grad(x);
  Tensor h = x * 2.0;
  Tensor dead = record("dead", clone(h.detach()), {h}, [](const Tensor&) { return Tensors{{}}; });
  Tensor deeper =
      record("deeper", clone(dead.detach()), {dead}, [](const Tensor&) { return Tensors{{}}; });
  int fired = 0;
  on_grad(x, [&] { ++fired; });
  backward(sum(h + deeper));
  EXPECT_EQ(fired, 1);
  expect_near(grad(x), {2, 2, 2}, 0);
}

TEST_F(EngineTest, TenThousandDeep) {
  Tensor x = filled({1}, 1).to(cpu);  // about the engine, not about a device
  require_grad(x);
  Tensor y = x;
  for (int i = 0; i < 10000; ++i) y = y + x;
  backward(y);
  EXPECT_EQ(grad(x).item(), 10001);
  Tensor never = x;  // and destroyed without a backward
  for (int i = 0; i < 200000; ++i) never = -never;
}

TEST_F(EngineTest, SecondBackwardIsRefused) {
  Tensor x = filled({2}, 1);
  require_grad(x);
  Tensor h = exp(x), y = sum(h);
  backward(y);
  expect_error([&] { backward(y); }, {"backward", "already used"});
  expect_error([&] { backward(sum(h * h)); }, {"exp", "already used"});
}

TEST_F(EngineTest, MisuseIsNamed) {
  Tensor x = filled({2}, 1), plain = filled({2}, 2);
  require_grad(x);
  expect_error([&] { backward(plain); }, {"backward", "requires a gradient"});
  expect_error([&] { backward(x * 2.0); }, {"backward", "one element"});
  expect_error([&] { backward(x * 2.0, zeros({3}, f64, test_device())); }, {"[3]", "[2]"});
  expect_error([&] { x.view({1, 2}); }, {"a view of", "gradient history", "detach"});
  expect_error([&] { clone(x); }, {"a copy of", "gradient history", "detach"});
  for (DType dtype : {f32, f64})  // also the one it has
    expect_error([&] { (void)x.to(dtype); }, {"a conversion of", "cast()", "detach"});
  expect_error([&] { (void)x.to(cpu); }, {"a move of", "move_to()"});
  Tensor turned = transpose(expand(x, {3, 2}), 0, 1);
  expect_error([&] { (void)turned.contiguous(); }, {"a copy of", "autograd/ops.h"});
  expect_error([&] { grad(plain); }, {"not a leaf"});
  Tensor index = zeros({2}, i32, test_device());
  expect_error([&] { require_grad(index); }, {"require_grad", "i32"});
  expect_error([&] { collect_gradient(x, f32); }, {"collect_gradient", "expected an op's output"});
  expect_error(
      [&] {
        linear_to({empty({2, 4}, f16, test_device())}, filled({2, 3}, 1), filled({4, 3}, 2));
      },
      {"linear_to:", "[2, 4] f16", "x's dtype or f64"});
  expect_error([&] { collect_in(x, view_of(zeros({3}, f64, test_device()))); },
               {"collect_in:", "expected its shape"});
  Tensor wrong = record("wrong", clone(x.detach()), {x}, [](const Tensor&) { return Tensors{}; });
  expect_error([&] { backward(sum(wrong)); }, {"wrong", "0 gradients", "expected 1"});
  Tensor shape = record("shape", clone(x.detach()), {x},
                        [](const Tensor&) { return Tensors{zeros({3}, f64, test_device())}; });
  expect_error([&] { backward(sum(shape)); }, {"shape", "[3]", "[2]"});
}

TEST_F(EngineTest, LowPrecisionLeavesCollectInF32) {
  Tensor w = filled({4, 4}, 2, bf16), x = filled({3, 4}, 1, bf16);
  require_grad(w);
  backward(sum(linear(x, w)));
  EXPECT_EQ(grad(w).dtype(), f32);
  Tensor v = filled({3}, 1, f16);
  require_grad(v);
  backward(sum(v * v));
  EXPECT_EQ(grad(v).dtype(), f32);
}

// What a leaf sees of rows is summed in its gradient's fp32: the sum may be too large for fp16.
TEST_F(EngineTest, StretchedLeavesAreSummedInFp32) {
  constexpr int64_t rows = 12;
  Tensor x = full({rows, 2}, 1, f16, test_device()), mask = full({1}, 1, u8, test_device());
  auto check = [&](const std::function<Tensor(const Tensor&)>& fn, double slope) {
    Tensor leaf = full({2}, 1, f16, test_device());
    require_grad(leaf);
    backward(fn(leaf), full(x.shape(), 8192, f16, test_device()));
    expect_near(grad(leaf), std::vector<double>(2, slope * 8192 * rows), 0);
  };
  check([&](const Tensor& b) { return x + b; }, 1);
  check([&](const Tensor& b) { return b + x; }, 1);
  check([&](const Tensor& b) { return x - b; }, -1);
  check([&](const Tensor& b) { return b - x; }, 1);
  check([&](const Tensor& b) { return x * b; }, 1);
  check([&](const Tensor& b) { return b * x; }, 1);
  check([&](const Tensor& b) { return x / b; }, -1);
  check([&](const Tensor& b) { return b / x; }, 1);
  check([&](const Tensor& b) { return expand(b, x.shape()); }, 1);
  check([&](const Tensor& b) { return where(mask, b, x); }, 1);
}

// A bucket whose bytes were handed to its reduction comes back fresh.
TEST_F(EngineTest, ReleasedBucketViewComesBack) {
  Tensor w = filled({4, 4}, 2), flat = zeros({20}, f64, test_device()), x = filled({3, 4}, 1);
  require_grad(w);
  collect_in(w, view_of(flat.narrow(0, 4, 16).view({4, 4})));
  backward(sum(linear(x, w)));
  auto once = values(grad(w));
  flat.storage()->release();
  backward(sum(linear(x, w)));
  EXPECT_EQ(values(grad(w)), once);
  backward(sum(linear(x, w)));
  EXPECT_NEAR(values(grad(w))[0], 2 * once[0], 1e-12);
}

/// Asks for each sample's part, in `chains` terms, on a grid.
struct OnGrid : autograd::GradientView {
  OnGrid(const Tensor& x, std::shared_ptr<const FixedPoint> f, int64_t n)
      : GradientView(x), grid(std::move(f)), chains(n) {}
  Sums offer(const autograd::Node& n) override {
    Sums s = GradientView::offer(n);
    s.grid = grid, s.terms = n.samples * chains;
    return s;
  }
  std::shared_ptr<const FixedPoint> grid;
  int64_t chains;
};

// A weight that two products use, one bias and a norm: each term is rounded before it is added,
// whatever terms another gradient of the op has.
TEST_F(EngineTest, TermsOfSumsOnAGridAreRoundedOnce) {
  if (on_gpu()) GTEST_SKIP() << "GPUs have no sums in fixed point";
  auto f = std::make_shared<FixedPoint>(FixedPoint{0x1p-6, 0x1p20});
  for (DType dtype : {f32, f64})
    for (auto [chains, samples] : {std::pair{1, 1}, {2, 1}, {1, 4}, {2, 4}}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << chains << " x " << samples);
      Tensor x = filled({128, 32}, 1, dtype), w = filled({32, 32}, 2, dtype);
      Tensor b = filled({32}, 3, dtype), dy = filled({128, 32}, 4, dtype);
      Tensor g = filled({32}, 5, dtype), shift = filled({32}, 6, dtype);
      struct Leaf {
        Tensor& value;
        int64_t chains;
        Tensor sums = full(value.shape(), 99, f64, cpu), expected = zeros(value.shape(), f64, cpu);
      } dw{w, 1}, db{b, chains}, dg{g, chains}, dshift{shift, chains};
      for (auto* l : {&dw, &db, &dg, &dshift}) {
        require_grad(l->value);
        collect_in(l->value, std::make_shared<OnGrid>(l->sums, f, l->chains));
      }
      auto part = [&](Leaf& to, const Tensor& of) {
        backend(cpu).accumulate_fixed(of.contiguous(), *f, to.expected, Write::add);
      };
      for (int pass = 0; pass < 2; ++pass) {
        {
          autograd::SamplesAtOnce scope(samples);
          backward(sum(linear(linear(x, w), w, b) * dy) + sum(layer_norm(x, g, shift) * dy));
        }
        NoGrad guard;
        Tensor h = linear(x, w), dh = matmul(dy, w);
        Tensor normal = layer_norm(x, full({32}, 1, dtype, cpu), zeros({32}, dtype, cpu));
        auto each_part = [&](int64_t parts, auto use) {
          for (int64_t i = 0, rows = 128 / parts; i < parts; ++i)
            use([=](const Tensor& t) { return t.narrow(0, i * rows, rows); });
        };
        each_part(samples, [&](auto rows) {
          part(dw, matmul(transpose(rows(dh), 0, 1), rows(x)));
          part(dw, matmul(transpose(rows(dy), 0, 1), rows(h)));
        });
        each_part(samples * chains, [&](auto rows) {
          part(db, sum(rows(dy), {0}));
          part(dshift, sum(rows(dy), {0}));
          part(dg, sum(rows(dy) * rows(normal), {0}));
        });
        for (auto* l : {&dw, &db, &dshift}) EXPECT_EQ(values(l->sums), values(l->expected));
        // Of normal rows, which this test makes by another op: but for a unit of each term.
        for (int64_t i = 0; i < 32; ++i)
          EXPECT_NEAR(values(dg.sums)[size_t(i)], values(dg.expected)[size_t(i)], 16 * 0x1p-6);
      }
    }
}

// The sum goes on elsewhere: the op's rule gets what the collector makes of all parts.
TEST_F(EngineTest, ACollectorHandsItsSumToTheRule) {
  struct Doubling : autograd::Collector {
    Sums offer(const autograd::Node&) override { return {}; }
    void collect(const autograd::Node& n, const Tensor& part) override {
      names += std::string(n.name) + " ";
      sum = sum.defined() ? sum + part : part;
    }
    Tensor take() override { return sum * 2; }
    std::string names;
    Tensor sum;
  };
  for (bool root : {false, true}) {
    Tensor x = filled({2, 3}, 1), w = filled({3, 3}, 2), dy = filled({2, 3}, 3);
    require_grad(x);
    auto collector = std::make_shared<Doubling>();
    Tensor y = record("way_in", clone(x.detach()), {x}, [](const Tensor& d) { return Tensors{d}; });
    collect_gradient(y, collector);
    backward(root ? y : linear(y, w) + y, dy.detach());
    Tensor expected = root ? dy * 2 : (matmul(dy, w) + dy) * 2;
    expect_bitwise(grad(x), expected);
    EXPECT_EQ(collector->names, root ? "way_in " : "add linear ");
  }
}

TEST_F(EngineTest, LaterRunsAtTheEnd) {
  Tensor x = filled({2}, 1);
  require_grad(x);
  std::vector<int> order;
  Tensor h = record("late", clone(x.detach()), {x}, [&](const Tensor& dy) {
    autograd::after_backward([&] { order.push_back(2); });
    order.push_back(1);
    return Tensors{dy};
  });
  backward(sum(h));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  expect_error([] { autograd::after_backward([] {}); }, {"no backward is running"});
}

}  // namespace
}  // namespace triax
