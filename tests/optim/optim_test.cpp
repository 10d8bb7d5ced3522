#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/optim/adamw.h"
#include "triax/optim/lion.h"
#include "triax/optim/schedule.h"
#include "triax/optim/sgd.h"

namespace triax::optim {
namespace {

using namespace test;

// The published algorithm, one element at a time.
struct Naive {
  double w, m = 0, v = 0;
  void adamw(double g, double lr, const AdamWOptions& o, bool decay, int t) {
    if (decay) w -= lr * o.weight_decay * w;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    double mh = m / (1 - std::pow(o.beta1, t)), vh = v / (1 - std::pow(o.beta2, t));
    w -= lr * mh / (std::sqrt(vh) + o.eps);
  }
};

TEST(OptimTest, AdamWFollowsTheAlgorithm) {
  const int64_t n = 67;
  AdamWOptions o{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-8, .weight_decay = 0.1};
  std::vector<Range> decayed{{3, 20}, {40, 67}};
  Tensor w = filled({n}, 1), g = zeros({n}, f64, test_device());
  std::vector<Naive> naive;
  for (double x : values(w)) naive.push_back({x});
  AdamW adam({{w, g, decayed}}, o);
  for (int t = 1; t <= 5; ++t) {
    copy_(g, filled({n}, 10 + uint64_t(t)));
    double lr = 0.01 * t, scale = 0.5;
    adam.step(lr, scale);
    auto grads = values(g);
    for (int64_t i = 0; i < n; ++i) {
      bool decay = (i >= 3 && i < 20) || i >= 40;
      naive[size_t(i)].adamw(scale * grads[size_t(i)], lr, o, decay, t);
    }
  }
  auto got = values(w);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], naive[i].w, 1e-12) << i;
  EXPECT_EQ(adam.steps(), 5);
}

// The low-precision weight is exactly the cast of its master, which moves by less than one ulp.
TEST(OptimTest, LowPrecisionWeightsHaveAMaster) {
  for (DType t : {bf16, f16}) {
    Tensor w = full({33}, 1, t, test_device()), g = full({33}, 1, f32, test_device());
    AdamW adam({{w, g, {}}}, {});
    Tensor master = adam.state()[2].value;
    for (int i = 0; i < 40; ++i) adam.step(1e-4);
    EXPECT_NEAR(values(master)[0], 1 - 40e-4, 1e-5);
    EXPECT_EQ(values(w), values(master.to(t)));
  }
}

// State copied into another optimizer goes on bitwise.
TEST(OptimTest, StateRoundTrips) {
  Tensor w1 = filled({19}, 1, f32), g = filled({19}, 2, f32), w2 = clone(w1);
  AdamW a({{w1, g, {{0, 19}}}}, {}), b({{w2, g, {{0, 19}}}}, {});
  for (int i = 0; i < 3; ++i) a.step(0.1);
  copy_(w2, w1);
  b.set_steps(a.steps());
  for (size_t i = 0; i < a.state().size(); ++i) copy_(b.state()[i].value, a.state()[i].value);
  a.step(0.1);
  b.step(0.1);
  expect_bitwise(w1, w2);
}

TEST(OptimTest, SgdWithMomentumAndNesterov) {
  using enum SgdRule::Form;
  for (auto form : {heavy_ball, nesterov}) {
    Tensor w = filled({9}, 1), g = filled({9}, 2);
    SgdOptions o{.momentum = 0.9, .weight_decay = 0.01, .form = form};
    auto x = values(w), v = std::vector<double>(9, 0), grads = values(g);
    Sgd sgd({{w, g, {{0, 9}}}}, o);
    for (int t = 0; t < 3; ++t) {
      sgd.step(0.1, 2);
      for (size_t i = 0; i < 9; ++i) {
        double d = 2 * grads[i] + 0.01 * x[i];
        v[i] = t == 0 ? d : 0.9 * v[i] + d;
        x[i] -= 0.1 * (form == nesterov ? d + 0.9 * v[i] : v[i]);
      }
    }
    auto got = values(w);
    for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(got[i], x[i], 1e-12);
  }
}

// The first step of each optimizer, by hand, of slots with rates of their own.
TEST(OptimTest, RatesOfSlotsByHand) {
  const double lr = 0.1, decay = 0.2;
  const Rates all[] = {{}, {.lr = 0.5}, {.lr = 2, .weight_decay = 0}, {.weight_decay = 0.3}};
  auto adamw = [](double g) { return g / (std::fabs(g) + 1e-8); };
  auto plain = [](double g) { return g; };
  auto sign = [](double g) { return double(g > 0) - double(g < 0); };
  struct Case {
    MakeOptimizer make;
    std::function<double(double)> direction;
  };
  const Case cases[] = {
      {[&](auto& s) { return std::make_unique<AdamW>(s, AdamWOptions{.weight_decay = decay}); },
       adamw},
      {[&](auto& s) { return std::make_unique<Sgd>(s, SgdOptions{.weight_decay = decay}); }, plain},
      {[&](auto& s) { return std::make_unique<Lion>(s, LionOptions{.weight_decay = decay}); },
       sign}};
  for (auto& [make, direction] : cases) {
    std::vector<Slot> slots;
    std::vector<std::vector<double>> before;
    for (auto& rates : all) {
      slots.push_back(
          {filled({9}, 1 + slots.size()), filled({9}, 50 + slots.size()), {{4, 9}}, rates});
      before.push_back(values(slots.back().weight));
    }
    make(slots)->step(lr);
    for (size_t s = 0; s < slots.size(); ++s) {
      auto grads = values(slots[s].grad), got = values(slots[s].weight);
      double rate = lr * all[s].lr, fades = all[s].weight_decay.value_or(decay);
      for (size_t i = 0; i < 9; ++i) {
        double w = before[s][i];
        EXPECT_NEAR(got[i], w - rate * direction(grads[i]) - (i >= 4 ? rate * fades * w : 0),
                    1e-12);
      }
    }
  }
}

TEST(OptimTest, LogarithmicWarmUp) {
  Schedule s{.shape = Schedule::Warmup::log, .peak = 3, .warmup = 8, .steps = 10};
  EXPECT_EQ(s.at(1), 0);
  EXPECT_DOUBLE_EQ(s.at(2), 1);  // log 2 / log 8 of the peak
  EXPECT_DOUBLE_EQ(s.at(8), 3);
  s.warmup = 1;
  EXPECT_EQ(s.at(1), 0);
}

TEST(OptimTest, ScheduleHasItsPublishedShape) {
  Schedule cosine{.peak = 1, .low = 0.1, .warmup = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(cosine.at(1), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(10), 1);
  EXPECT_NEAR(cosine.at(60), 0.55, 1e-12);
  EXPECT_NEAR(cosine.at(110), 0.1, 1e-12);
  EXPECT_NEAR(cosine.at(500), 0.1, 1e-12);
  Schedule linear{.decay = Schedule::Decay::linear, .peak = 1, .low = 0, .warmup = 0, .steps = 100};
  EXPECT_NEAR(linear.at(25), 0.75, 1e-12);
  expect_error([&] { cosine.at(0); }, {"schedule", "step 0"});
}

TEST(OptimTest, Clipping) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_NEAR(clip_factor(4, 1), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(100, 0), 1);
}

TEST(OptimTest, SlotsAreChecked) {
  Tensor w = zeros({4}, f32, test_device());
  expect_error(
      [&] {
        AdamW a({{w, zeros({5}, f32, test_device()), {}}}, {});
      },
      {"adamw", "[4]", "[5]"});
  expect_error([&] { Sgd s({{w, zeros({4}, f64, test_device()), {}}}); }, {"sgd", "accumulator"});
  expect_error([&] { AdamW a({{w, clone(w), {{2, 5}}}}, {}); }, {"[2, 5)", "slot of 4"});
  expect_error([&] { AdamW a({{w, clone(w), {}}}, {.beta1 = 1}); }, {"beta1 1"});
}

}  // namespace
}  // namespace triax::optim
