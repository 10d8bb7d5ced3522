// The contract of every optimizer: the numbers of a step may come from the host or from a device,
// and a step that does not happen changes nothing.
#include "triax/optim/optimizer.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/ops.h"
#include "triax/optim/adamw.h"
#include "triax/optim/averaged.h"
#include "triax/optim/lion.h"
#include "triax/optim/muon.h"
#include "triax/optim/sgd.h"

namespace triax::optim {
namespace {

using namespace test;
using Rows = std::vector<std::vector<double>>;

/// The decision of a step, on the device of these tests.
Tensor decided(const StepDecision& d) {
  auto v = values_of(d);
  return from_host(std::vector<double>(v.begin(), v.end()), {StepDecision::size}, test_device());
}

/// Weights with their optimizer, and gradients that differ from step to step.
struct Trained {
  explicit Trained(const MakeOptimizer& make)
      : slots{{filled({13}, 1, bf16), filled({13}, 2, f32), {{2, 9}}, {}, {{"w", {3, 9}, 2, 3}}}},
        optimizer(make(slots)) {}
  void gradients_of(int step) { copy_(slots[0].grad, filled({13}, 10 + uint64_t(step), f32)); }
  /// Weights, and all that a checkpoint would hold.
  std::vector<std::vector<double>> everything() const {
    std::vector<std::vector<double>> all{values(slots[0].weight)};
    for (auto& s : optimizer->state()) all.push_back(values(s.value));
    return all;
  }
  std::vector<Slot> slots;
  std::unique_ptr<Optimizer> optimizer;
};

/// w -= lr grad_scale g / steps: nothing but `update`, as a user would write it.
class Decaying final : public Optimizer {
 public:
  explicit Decaying(const std::vector<Slot>& slots) : slots_(slots) {
    for (auto& s : slots_) sums_.push_back(zeros_like(s.grad));
  }
  std::vector<SlotState> state() const override {
    std::vector<SlotState> all;
    for (size_t i = 0; i < sums_.size(); ++i) all.push_back({i, "sum", sums_[i]});
    return all;
  }
  std::vector<StepDecision> seen;

 private:
  void update(const StepDecision& d) override {
    seen.push_back(d);
    for (size_t i = 0; i < slots_.size(); ++i) {
      Tensor delta = slots_[i].grad * (d.lr * d.grad_scale / d.step);
      copy_(sums_[i], sums_[i] + delta);
      copy_(slots_[i].weight, (slots_[i].weight.to(delta.dtype()) - delta).to(bf16));
    }
  }
  std::vector<Slot> slots_;
  std::vector<Tensor> sums_;
};

struct Kind {
  const char* name;
  MakeOptimizer make;
};
template <class O, class Options> MakeOptimizer maker(const Options& options) {
  return [=](const std::vector<Slot>& slots) { return std::make_unique<O>(slots, options); };
}
const std::vector<Kind> kinds{
    {"sgd", maker<Sgd>(SgdOptions{.weight_decay = 0.1})},
    {"momentum", maker<Sgd>(SgdOptions{.momentum = 0.9})},
    {"nesterov", maker<Sgd>(SgdOptions{.momentum = 0.9, .form = SgdRule::Form::nesterov})},
    {"lion", maker<Lion>(LionOptions{})},
    {"adamw", maker<AdamW>(AdamWOptions{})},
    {"muon", maker<Muon>(MuonOptions{})},
    {"averaged",
     [](const std::vector<Slot>& slots) {
       return std::make_unique<Averaged>(slots, std::make_unique<AdamW>(slots, AdamWOptions{}),
                                         0.9);
     }},
    {"of the test's own",
     [](const std::vector<Slot>& slots) { return std::make_unique<Decaying>(slots); }}};

TEST(OptimizerTest, ADecisionIsTheSameStepAsItsNumbers) {
  for (auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    Trained host(make), device(make);
    auto before = host.everything();
    for (int step = 1; step <= 4; ++step) {
      host.gradients_of(step), device.gradients_of(step);
      double lr = 0.1 * step, scale = 0.5;
      host.optimizer->step(lr, scale);
      device.optimizer->step(decided({lr, double(step), scale, 1, 0}));
      ASSERT_EQ(host.everything(), device.everything()) << "step " << step;
    }
    EXPECT_NE(host.everything(), before);
    EXPECT_EQ(device.optimizer->steps(), 4);
  }
}

// A slot's rates are what an optimizer with other options would be given.
TEST(OptimizerTest, ASlotHasRatesOfItsOwn) {
  const std::vector<std::pair<MakeOptimizer, MakeOptimizer>> pairs{
      {maker<Sgd>(SgdOptions{.momentum = 0.9, .weight_decay = 0.1}),
       maker<Sgd>(SgdOptions{.momentum = 0.9, .weight_decay = 0.4})},
      {maker<Lion>(LionOptions{.weight_decay = 0.1}),
       maker<Lion>(LionOptions{.weight_decay = 0.4})},
      {maker<AdamW>(AdamWOptions{.weight_decay = 0.1}),
       maker<AdamW>(AdamWOptions{.weight_decay = 0.4})},
      {maker<Muon>(MuonOptions{.weight_decay = 0.1}),
       maker<Muon>(MuonOptions{.weight_decay = 0.4, .adamw = {.weight_decay = 0.4}})}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    SCOPED_TRACE(i);
    Trained plain(pairs[i].second), host(pairs[i].second), device(pairs[i].second);
    for (Trained* t : {&host, &device}) {
      t->slots[0].rates = {.lr = 0.25, .weight_decay = 0.4};
      t->optimizer = pairs[i].first(t->slots);
    }
    for (int step = 1; step <= 3; ++step) {
      for (Trained* t : {&plain, &host, &device}) t->gradients_of(step);
      plain.optimizer->step(0.25 * 0.1 * step);
      host.optimizer->step(0.1 * step);
      device.optimizer->step(decided({0.1 * step, double(step), 1, 1, 0}));
      ASSERT_EQ(host.everything(), plain.everything()) << "step " << step;
      ASSERT_EQ(device.everything(), plain.everything()) << "step " << step;
    }
  }
}

TEST(OptimizerTest, AStepThatDoesNotHappenChangesNothing) {
  for (auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    Trained skips(make), never(make);
    auto step = [&](Trained& t, int number, double lr) {
      t.gradients_of(number);
      t.optimizer->step(decided({lr, double(number), 1, 1, 0}));
    };
    for (int number : {1, 2}) step(skips, number, 0.1), step(never, number, 0.1);
    auto before = skips.everything();
    fill_(skips.slots[0].grad, NAN);
    skips.optimizer->step(decided({0.1, 3, 1, 0, 0}));
    EXPECT_EQ(skips.everything(), before);
    EXPECT_EQ(skips.optimizer->steps(), 3) << "counts, until the host says otherwise";
    skips.optimizer->set_steps(2);
    step(skips, 3, 0.2), step(never, 3, 0.2);
    EXPECT_EQ(skips.everything(), never.everything());
    EXPECT_EQ(skips.optimizer->steps(), never.optimizer->steps());
  }
}

// As a step may be the first that is skipped: momentum has nothing to go on from.
TEST(OptimizerTest, TheFirstStepMayNotHappen) {
  for (auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    Trained skips(make), never(make);
    fill_(skips.slots[0].grad, INFINITY);
    skips.optimizer->step(decided({0.1, 1, 1, 0, 0}));
    skips.optimizer->set_steps(0);
    skips.gradients_of(1), never.gradients_of(1);
    skips.optimizer->step(0.1), never.optimizer->step(0.1);
    EXPECT_EQ(skips.everything(), never.everything());
  }
}

TEST(OptimizerTest, AnOptimizerSeesTheDecisionAndTheNumberOfItsStep) {
  Trained t(kinds.back().make);
  auto& seen = dynamic_cast<Decaying&>(*t.optimizer).seen;
  t.optimizer->set_steps(6);
  t.optimizer->step(0.25, 0.5);
  t.optimizer->step(decided({0.75, 8, 2, 1, 0}));
  t.optimizer->step(decided({0.75, 9, 2, 0, 1}));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ((std::vector{seen[0].lr, seen[0].step, seen[0].grad_scale}),
            (std::vector{0.25, 7., 0.5}));
  EXPECT_EQ((std::vector{seen[1].lr, seen[1].step, seen[1].grad_scale}),
            (std::vector{0.75, 8., 2.}));
}

Rows rows_of(const std::vector<double>& flat, size_t rows, size_t columns) {
  Rows m(rows, std::vector<double>(columns));
  for (size_t i = 0; i < rows * columns; ++i) m[i / columns][i % columns] = flat[i];
  return m;
}
Rows transposed(const Rows& a) {
  Rows t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
Rows times(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b[0].size(); ++j)
      for (size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

/// zeropower_via_newtonschulz5 of the reference implementation, in loops; never transposed.
Rows orthogonal(Rows x) {
  double square = 0;
  for (auto& row : x)
    for (double v : row) square += v * v;
  for (auto& row : x)
    for (double& v : row) v /= std::sqrt(square) + 1e-7;
  for (int n = 0; n < 5; ++n) {
    Rows a = times(x, transposed(x)), aa = times(a, a);
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t j = 0; j < a.size(); ++j) a[i][j] = -4.7750 * a[i][j] + 2.0315 * aa[i][j];
    Rows bx = times(a, x);
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + bx[i][j];
  }
  return x;
}

// Matrices follow the reference, what lies around them AdamW; wide and tall, with and without
// decay.
TEST(Muon, FollowsTheAlgorithm) {
  const MuonOptions o{.momentum = 0.9, .weight_decay = 0.3, .adamw = {.weight_decay = 0.2}};
  Tensor w = filled({30}, 1), g = zeros({30}, f64, test_device());
  Slot slot{w, g, {{3, 15}, {27, 30}}, {.lr = 0.5}, {{"a", {3, 15}, 4, 3}, {"b", {17, 27}, 2, 5}}};
  Tensor w2 = clone(w);
  AdamW adam({{w2, g, slot.decayed, slot.rates}}, o.adamw);
  Muon muon({slot}, o);
  struct Place {
    size_t begin, rows, columns;
    double decay;
  };
  const Place places[] = {{3, 4, 3, 0.3}, {17, 2, 5, 0}};
  auto expected = values(w);
  std::vector<double> velocity(30);
  for (int t = 1; t <= 3; ++t) {
    copy_(g, filled({30}, 10 + uint64_t(t)));
    muon.step(0.1, 2), adam.step(0.1, 2);
    auto grads = values(g);
    for (auto& p : places) {
      std::vector<double> u;
      for (size_t i = p.begin; i < p.begin + p.rows * p.columns; ++i) {
        velocity[i] = 0.9 * velocity[i] + 0.1 * 2 * grads[i];
        u.push_back(0.9 * velocity[i] + 0.1 * 2 * grads[i]);
      }
      Rows direction = orthogonal(rows_of(u, p.rows, p.columns));
      double size = 0.2 * std::sqrt(double(std::max(p.rows, p.columns))), lr = 0.1 * 0.5;
      for (size_t i = 0; i < u.size(); ++i) {
        double& x = expected[p.begin + i];
        x -= lr * (size * direction[i / p.columns][i % p.columns] + p.decay * x);
      }
    }
    auto got = values(w), rest = values(w2);
    for (size_t i = 0; i < 30; ++i) {
      bool in_matrix = (i >= 3 && i < 15) || (i >= 17 && i < 27);
      ASSERT_NEAR(got[i], in_matrix ? expected[i] : rest[i], 1e-10) << "step " << t << " at " << i;
    }
  }
}

// The iteration acts on each singular value by itself, so a diagonal matrix shows them.
TEST(Muon, SingularValuesComeNearToOne) {
  std::vector<double> x(64), singular{0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.05};
  for (size_t i = 0; i < 8; ++i) x[9 * i] = singular[i];
  auto y = values(orthogonalized(from_host(x, {8, 8}, test_device()), 5));
  for (size_t i = 0; i < 64; ++i) {
    bool diagonal = i % 9 == 0;
    EXPECT_NEAR(y[i], diagonal ? 0.95 : 0, diagonal ? 0.3 : 0) << "at " << i;
  }
}

TEST(Muon, StateNamesItsPlaceInTheSlot) {
  Slot slot{filled({20}, 1, bf16), filled({20}, 2, f32), {}, {}, {{"w", {4, 16}, 3, 4}}};
  std::vector<std::pair<std::string, Range>> got;
  Muon muon({slot, slot});
  for (auto& s : muon.state())
    if (s.slot == 1) got.push_back({s.kind, {s.begin, s.begin + s.value.numel()}});
  std::vector<std::string> text;
  for (auto& [kind, range] : got)
    text.push_back(kind + " " + std::to_string(range.begin) + " " + std::to_string(range.end));
  EXPECT_EQ(text, (std::vector<std::string>{"velocity 4 16", "master 4 16", "m 0 4", "v 0 4",
                                            "master 0 4", "m 16 20", "v 16 20", "master 16 20"}));
}

TEST(Muon, MatricesThatAreCutAreRefused) {
  Slot slot{filled({20}, 1), filled({20}, 2), {}, {}, {{"block0.up.weight", {0, 20}, 3, 8}}};
  expect_error([&] { Muon muon({slot}); },
               {"muon: this rank holds 20 of the 3 x 8 elements of block0.up.weight"});
  expect_error([&] { Muon muon({}, {.momentum = 1}); }, {"muon: momentum 1"});
}

}  // namespace
}  // namespace triax::optim
