// What ZeRO sends and what it saves: bytes by the ledger and by the memory counter, against the
// closed forms. correctness 19, 20, 28.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/examples/minigpt/one_step.h"

namespace triax::minigpt::sharding_test {

/// Elements of this rank's stage and slice, with the padding of buckets.
double elements(const parallel::Replica& replica, const Job& c) {
  double n = 0;
  for (auto& slot : replica.data().slots()) n += double(slot.weight.numel());
  return c.step().zero == parallel::Zero::off ? n : n * double(c.step().mesh.dp);
}

/// Of the token table, which with one stage is used at both ends; padded as a bucket.
double tied_elements(const Job& c) {
  int64_t n = c.model.vocab * c.model.width, unit = 16 * c.step().mesh.dp;
  return double((n + unit - 1) / unit * unit);
}

TEST(Sharding, SendsWhatTheClosedFormsSay) {
  for (int dp : {2, 3, 4})
    for (int zero : {0, 1, 2, 3})
      for (int64_t micros : {1, 2, 4}) {
        Job c = small_job({.dp = dp, .zero = zero}, micros);
        one_step(
            c, [](auto&, auto&) {},
            [&](parallel::Mesh& mesh, const parallel::Replica& replica) {
              double n = elements(replica, c), m = double(micros),
                     share = double(dp - 1) / double(dp);
              double passes = zero <= 1 ? 2 : zero == 2 ? m + 1 : 3 * m;
              // The table is gathered for the embedding and again for the head.
              double again = zero == 3 ? 2 * m * tied_elements(c) : 0;
              EXPECT_NEAR(mesh.dp().ledger().total().bytes, 4 * share * (passes * n + again), 1e-6)
                  << "dp " << dp << ", zero " << zero << ", micros " << micros;
            });
      }
}

TEST(Sharding, DividesOptimizerGradientsAndParameters) {
  for (int dp : {2, 4})
    for (int pp : {1, 2})
      for (int zero : {0, 1, 2, 3}) {
        Job c = small_job({.dp = dp, .pp = pp, .zero = zero}, 2);
        auto at_rest = [&](parallel::Mesh&, const parallel::Replica& replica) {
          SCOPED_TRACE(fmt::format("dp {}, pp {}, zero {}, recompute {}", dp, pp, zero,
                                   int(c.step().recompute)));
          const auto& held = *memory::counter();
          double all = 4 * elements(replica, c), slice = all / double(dp), largest = 0;
          for (auto& slot : replica.data().slots())
            largest = std::max(largest, 4.0 * double(slot.weight.numel() * (zero ? dp : 1)));
          auto share = [&](int64_t since) { return zero >= since ? slice : all; };
          EXPECT_EQ(double(held.live(memory::optimizer)), 2 * share(1));
          EXPECT_EQ(double(held.live(memory::gradients)), share(2));
          EXPECT_EQ(double(held.live(memory::parameters)), share(3));
          // The two largest units beside the slice.
          if (zero == 3) EXPECT_LE(double(held.peak(memory::parameters)), slice + 2 * largest);
          else EXPECT_EQ(double(held.peak(memory::parameters)), all);
          // The bucket being filled, the one in flight and its part of the slice; and the token
          // table's, which is open from the head to the embedding.
          double open = pp == 1 ? 4 * tied_elements(c) : 0;
          if (zero >= 2)
            EXPECT_LE(double(held.peak(memory::gradients)),
                      slice + 2 * largest + largest / double(dp) + open);
          else EXPECT_EQ(double(held.peak(memory::gradients)), all);
        };
        for (auto recompute : {parallel::Recompute::off, parallel::Recompute::block}) {
          c.step().recompute = recompute;
          one_step(
              c, [](auto&, auto&) {}, at_rest);
        }
      }
}

TEST(Sharding, SchedulesKeepWhatTheorySays) {
  constexpr int micros = 6, pp = 4;
  struct Expected {
    const char* schedule;
    std::vector<int> live;
  };
  for (auto& [schedule, live] : {Expected{"gpipe", {6, 6, 6, 6}},
                                 {"1f1b", {4, 3, 2, 1}},
                                 {"zb-h1", {4, 4, 4, 4}},
                                 {"zb-2p", {6, 6, 6, 5}}}) {
    Job c = small_job({.dp = 1, .pp = pp, .schedule = schedule}, micros);
    one_step(
        c,
        [&, name = schedule, &most = live](parallel::Mesh& mesh, const parallel::Replica& replica) {
          EXPECT_EQ(replica.pipeline().peak_live(), most[size_t(mesh.pp().rank())])
              << name << " on stage " << mesh.pp().rank();
        },
        [](auto&, auto&) {});
  }
}

}  // namespace triax::minigpt::sharding_test
