// What two traces have in common, name by name.
#include <gtest/gtest.h>

#include <cmath>

#include "triax/parallel/parity/parity.h"

namespace triax::parallel::compare_test {

Assembled whole(float value) { return {.values = {value}, .known = {true}, .conflict = {}}; }

// In the order of bytes `x.y` and `x.y/m` stand between `x` and `x/m`.
TEST(Compare, OptimizerStateOfANameThatBeginsAnother) {
  Trace reference{.parameters = {"x", "x.y"}};
  for (const char* name : {"x", "x/m", "x.y", "x.y/m"}) reference.initial[name] = whole(1);
  Trace run = reference;
  EXPECT_FALSE(first_difference(reference, run, {}, {}));
  run.initial["x/m"] = whole(2);
  auto d = first_difference(reference, run, {}, {});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->what, "moment");
  EXPECT_EQ(d->name, "x/m");
}

/// A step with one activation, gradient and weight.
TraceStep step(float activation, float gradient, float weight) {
  return {.loss = 1,
          .norms = {1},
          .activations = {{"layer",
                           {.values = {1, activation}, .known = {true, true}, .conflict = {}}}},
          .gradients = {{"w", {.values = {1, gradient}, .known = {true, true}, .conflict = {}}}},
          .state = {{"w", {.values = {1, weight}, .known = {true, true}, .conflict = {}}}}};
}
Trace trace_of(const std::vector<TraceStep>& steps) {
  return {.layers = {"layer"}, .parameters = {"w"}, .initial = {}, .steps = steps};
}

// AdamW makes a whole update of a gradient that is rounding, in one of the two runs or in both;
// what else rounding does to the weight comes on top.
TEST(Compare, AWeightMayMoveByWhatRoundingMakesOfAGradient) {
  ParityBounds bounds{.weight = 1e-5, .noise = 0.02};
  auto differ = [&](float right, float other, double apart) {
    return first_difference(trace_of({step(0, right, 0.5f)}),
                            trace_of({step(0, other, float(0.5 + apart))}), {}, bounds);
  };
  EXPECT_FALSE(differ(1e-7f, -1e-7f, 0.02));
  EXPECT_FALSE(differ(0, 1e-7f, 0.02));
  EXPECT_FALSE(differ(1e-7f, 0, 0.020009));
  EXPECT_TRUE(differ(1e-7f, 0, 0.0201));
  EXPECT_FALSE(differ(1.4e-5f, 0.5e-5f, 0.02)) << "noise in the other run";
  EXPECT_FALSE(differ(0.5e-5f, 1.4e-5f, 0.02));
  EXPECT_TRUE(differ(0, 0, 0.02)) << "no gradient, no update";
  EXPECT_TRUE(differ(0.5f, 0.5f, 0.02));
}

// A learning rate may be so large that weights are infinite where the loss is not yet.
TEST(Compare, EqualInfinitiesAreEqual) {
  auto differ = [](float right, float other) {
    return first_difference(trace_of({step(0, 1, right)}), trace_of({step(0, 1, other)}), {},
                            {.loss = 0, .norm = 0, .gradient = 0, .activation = 0, .weight = 0});
  };
  EXPECT_FALSE(differ(INFINITY, INFINITY));
  EXPECT_TRUE(differ(INFINITY, -INFINITY));
  EXPECT_TRUE(differ(INFINITY, 1));
  EXPECT_TRUE(differ(NAN, NAN));
}

// Lion takes a whole step along the sign of what the moment and the clipped gradient leave of each
// other, be it rounding.
TEST(Compare, ASignOfLionMayBeThatOfRounding) {
  ParityBounds bounds{.weight = 1e-5, .noise = 0.02, .lion = {.beta1 = 0.9, .clip = 1}};
  auto differ = [&](float moment, float gradient, double apart) {
    auto run = [&](double weight) {
      auto steps = std::vector{step(0, 0.5f, 0.5f), step(0, gradient, float(weight))};
      for (TraceStep& s : steps) {
        s.norms = {4}, s.loss_scale = 2;
        s.state["w/m"] = {.values = {1, moment}, .known = {true, true}, .conflict = {}};
      }
      return trace_of(steps);
    };
    return first_difference(run(0.5), run(0.5 + apart), {}, bounds).has_value();
  };
  EXPECT_FALSE(differ(0.1f, -7.2f, 0.02)) << "0.9 x 0.1 - 0.1 x 7.2 / 2 / 4";
  EXPECT_TRUE(differ(0.1f, -7.2f, 0.0201));
  EXPECT_TRUE(differ(0.1f, -3.6f, 0.02)) << "the gradient was clipped and had a loss scale";
  EXPECT_TRUE(differ(0.1f, -7.21f, 0.02));
  EXPECT_TRUE(differ(0, 0, 0.02)) << "neither moment nor gradient";
  bounds.lion.beta1 = 0;
  EXPECT_TRUE(differ(0.1f, -7.2f, 0.02)) << "another optimizer";
}

// Muon makes a whole update of directions that are rounding.
TEST(Compare, AMatrixOfMuonMayMoveFurther) {
  ParityBounds bounds{.weight = 1e-5, .update = 0.01, .muon = 0.05};
  auto differ = [&](const char* state, double apart) {
    auto run = [&](double weight) {
      TraceStep s = step(0, 0.5f, float(weight));
      s.state[state] = {.values = {1, 1}, .known = {true, true}, .conflict = {}};
      return trace_of({s});
    };
    return first_difference(run(0.5), run(0.5 + apart), {}, bounds).has_value();
  };
  EXPECT_FALSE(differ("w/velocity", 0.05));
  EXPECT_TRUE(differ("w/velocity", 0.051));
  EXPECT_TRUE(differ("w/m", 0.05)) << "AdamW's";
}

// Once weights have drifted apart, so has all that is computed of them but sums over everything.
TEST(Compare, ARunThatDriftsIsComparedInSumsAndWeights) {
  ParityBounds bounds{.noise = 0.02, .drift = 0.1};
  auto differ = [&](const std::vector<TraceStep>& steps) {
    auto d =
        first_difference(trace_of({step(0, 0, 0), step(0, 0, 0)}), trace_of(steps), {}, bounds);
    return d ? d->what : "";
  };
  EXPECT_EQ(differ({step(0, 0, 0), step(0.1f, 0.1f, 0)}), "");
  EXPECT_EQ(differ({step(0.1f, 0, 0), step(0, 0, 0)}), "activation");
  EXPECT_EQ(differ({step(0, 0, 0), step(0.1f, 0, 0.1f)}), "weight");
  TraceStep apart = step(0, 0, 0), lost = apart, torn = apart;
  apart.loss = 1.1;
  TraceStep longer = torn;
  longer.norms[0] = 1.09;
  lost.activations["layer"].known[1] = false;
  torn.gradients["w"].conflict = "element 1: 0 and 1";
  EXPECT_EQ(differ({step(0, 0, 0), apart}), "loss");
  EXPECT_EQ(differ({step(0, 0, 0), longer}), "");
  EXPECT_EQ(differ({longer, step(0, 0, 0)}), "gradient norm");
  longer.norms[0] = 1.11;
  EXPECT_EQ(differ({step(0, 0, 0), longer}), "gradient norm");
  EXPECT_EQ(differ({step(0, 0, 0), lost}), "activation");
  EXPECT_EQ(differ({step(0, 0, 0), torn}), "gradient on replicas");
}

}  // namespace triax::parallel::compare_test
