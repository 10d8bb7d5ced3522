// The loss scale over given overflow patterns, as the two published behaviours have it.
// correctness 13, 14.
#include "triax/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/expect_error.h"

namespace triax::optim {
namespace {

using Kind = LossScaleOptions::Kind;
using Refill = LossScaleOptions::Refill;

/// The scale after each step; `x` overflows, `.` is good.
std::vector<double> trace(const LossScaleOptions& options, const std::string& pattern) {
  LossScaler scaler(options);
  std::vector<double> scales;
  for (char c : pattern) {
    scaler.update(c == 'x');
    scales.push_back(scaler.scale());
  }
  return scales;
}

using Scales = std::vector<double>;

// Worked out by hand from megatron/core/optimizer/grad_scaler.py (DynamicGradScaler.update): the
// tracker of hysteresis is refilled when the scale grows, and an overflow halves the scale whenever
// it is down to 0.
TEST(LossScaler, AsMegatron) {
  LossScaleOptions o{.initial = 16, .minimum = 2, .window = 3, .hysteresis = 2};
  EXPECT_EQ(trace(o, "..."), (Scales{16, 16, 32}));
  EXPECT_EQ(trace(o, "x.x.x"), (Scales{16, 16, 8, 8, 4}));                // spent for good
  EXPECT_EQ(trace(o, "xx...x.x"), (Scales{16, 8, 8, 8, 16, 16, 16, 8}));  // refilled by growth
  EXPECT_EQ(trace(o, "..x..."), (Scales{16, 16, 16, 16, 16, 32}));        // the window starts again
  EXPECT_EQ(trace(o, "xxxxx"), (Scales{16, 8, 4, 2, 2}));                 // not below the minimum
}

// From deepspeed/runtime/fp16/loss_scaler.py (DynamicLossScaler.update_scale) with
// consecutive_hysteresis: any good step refills.
TEST(LossScaler, AsDeepSpeedWithConsecutiveHysteresis) {
  LossScaleOptions o{
      .initial = 16, .minimum = 2, .window = 3, .hysteresis = 2, .refill = Refill::on_good_step};
  EXPECT_EQ(trace(o, "x.x.x"), (Scales{16, 16, 16, 16, 16}));
  EXPECT_EQ(trace(o, "xx.x"), (Scales{16, 8, 8, 8}));
  EXPECT_EQ(trace(o, "xxx"), (Scales{16, 8, 4}));
}

TEST(LossScaler, HysteresisOneHalvesAtOnce) {
  EXPECT_EQ(trace({.initial = 4, .window = 2, .hysteresis = 1}, "x..x"), (Scales{2, 2, 4, 2}));
}

TEST(LossScaler, AFixedScaleStays) {
  EXPECT_EQ(trace({.kind = Kind::fixed, .initial = 8, .window = 1, .hysteresis = 1}, "x.x.."),
            (Scales{8, 8, 8, 8, 8}));
}

TEST(LossScaler, GivesUp) {
  LossScaler low({.initial = 2, .minimum = 1, .hysteresis = 1});
  low.update(true);
  EXPECT_FALSE(low.exhausted());
  low.update(true);
  EXPECT_TRUE(low.exhausted()) << "an overflow at the smallest scale";
  LossScaler fixed({.kind = Kind::fixed, .initial = 8, .most_skips = 3});
  for (bool overflow : {true, true, false, true, true}) {
    fixed.update(overflow);
    EXPECT_FALSE(fixed.exhausted());
  }
  fixed.update(true);
  EXPECT_TRUE(fixed.exhausted()) << "three in a row";
}

TEST(LossScaler, GrowsNoFurtherThanItCan) {
  auto scales = trace({.initial = 0x1p1023, .window = 1}, "..");
  EXPECT_EQ(scales, (Scales{0x1p1023, 0x1p1023}));
}

TEST(LossScaler, StateReadsBackExactly) {
  LossScaleOptions o{.initial = 48.7, .window = 5, .hysteresis = 3};
  const std::string pattern = "..x.xx..x....x.....xx";
  for (size_t cut = 0; cut <= pattern.size(); ++cut) {
    LossScaler whole(o), first(o), second(o);
    for (size_t i = 0; i < pattern.size(); ++i) whole.update(pattern[i] == 'x');
    for (size_t i = 0; i < cut; ++i) first.update(pattern[i] == 'x');
    second.restore(first.state());
    for (size_t i = cut; i < pattern.size(); ++i) second.update(pattern[i] == 'x');
    EXPECT_EQ(second.state(), whole.state()) << cut;
  }
}

TEST(LossScaler, RefusesWhatIsNoState) {
  LossScaler s({});
  for (const char* text :
       {"", "1 2 3", "1 2 3 4 5", "a 1 1 1", "-1 0 0 0", "inf 0 0 0", "1 -1 0 0"})
    test::expect_data_error([&] { s.restore(text); }, {"loss scaler: state `"});
  test::expect_error([] { LossScaler({.initial = 0.5}); }, {"initial 0.5, minimum 1"});
}

}  // namespace
}  // namespace triax::optim
