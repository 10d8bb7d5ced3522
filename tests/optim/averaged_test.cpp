#include "triax/optim/averaged.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/optim/adamw.h"
#include "triax/optim/sgd.h"

namespace triax::optim {
namespace {

using namespace test;

/// The averages of all slots, one after the other.
std::vector<double> average(const Optimizer& o) {
  std::vector<double> all;
  for (auto& s : o.state())
    if (s.kind == std::string("average"))
      for (double x : values(s.value)) all.push_back(x);
  return all;
}

// The definition: weights after each update, older ones with less weight, the initial ones with
// none.
TEST(Averaged, IsTheMeanOfAllWeightsSinceTheFirstUpdate) {
  for (double decay : {0., 0.5, 0.99}) {
    Tensor w = filled({5}, 1), g = filled({5}, 2);
    std::vector<Slot> slots{{w, g}};
    Averaged o(slots, std::make_unique<Sgd>(slots, SgdOptions{}), decay);
    EXPECT_EQ(average(o), values(w));
    std::vector<std::vector<double>> history;
    for (int t = 1; t <= 4; ++t) {
      copy_(g, filled({5}, 10 + uint64_t(t)));
      o.step(0.1);
      history.push_back(values(w));
      auto got = average(o);
      for (size_t i = 0; i < 5; ++i) {
        double sum = 0, all = 0;
        for (int k = 1; k <= t; ++k) {
          double share = std::pow(decay, t - k);
          sum += share * history[size_t(k) - 1][i], all += share;
        }
        EXPECT_NEAR(got[i], sum / all, 1e-12) << "decay " << decay << ", step " << t;
      }
    }
  }
}

// Weights in bf16 do not move in steps this small; their masters do.
TEST(Averaged, IsOfTheMasters) {
  Tensor w = full({3}, 1, bf16, test_device()), g = full({3}, 1, f32, test_device());
  std::vector<Slot> slots{{w, g}};
  Averaged o(slots, std::make_unique<Sgd>(slots, SgdOptions{}), 0.5);
  o.step(1e-4), o.step(1e-4);
  EXPECT_EQ(values(w)[0], 1);
  EXPECT_NEAR(average(o)[0], 1 - 1e-4 * (1 + 2 * 2) / 3, 1e-6);
}

// Copied with its steps it goes on the same; the wrapped optimizer too, whose bias correction
// counts.
TEST(Averaged, StateRoundTrips) {
  Tensor w1 = filled({7}, 1, f32), w2 = filled({7}, 5, f32), g = filled({7}, 2, f32);
  std::vector<Slot> one{{w1, g}}, two{{w2, g}};
  Averaged a(one, std::make_unique<AdamW>(one, AdamWOptions{}), 0.9);
  Averaged b(two, std::make_unique<AdamW>(two, AdamWOptions{}), 0.9);
  for (int i = 0; i < 3; ++i) a.step(0.1);
  copy_(w2, w1);
  b.set_steps(a.steps());
  for (size_t i = 0; i < a.state().size(); ++i) copy_(b.state()[i].value, a.state()[i].value);
  a.step(0.1), b.step(0.1);
  expect_bitwise(w1, w2);
  EXPECT_EQ(average(a), average(b));
}

TEST(Averaged, DecaysAreChecked) {
  std::vector<Slot> slots{{filled({2}, 1), filled({2}, 2)}};
  expect_error([&] { Averaged(slots, std::make_unique<Sgd>(slots, SgdOptions{}), 1); },
               {"average: decay 1"});
}

}  // namespace
}  // namespace triax::optim
