// A placement of layers of a program's own.
#include <gtest/gtest.h>

#include "parallel/plan/step_time.h"
#include "parallel/train/replica.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using Counts = std::vector<int64_t>;

TEST(OwnPlacement, ComesAfterTheFlagAndBeforeTheBalance) {
  Task task = test::task_of();  // layers rows, block0, block1, head
  StepOptions o = test::tiny_options({.dp = 1, .pp = 2}).step;
  o.chunks = 1;
  std::vector<int64_t> first{0};
  Facts facts = probe(task.build, task.samples->batch(first), {});
  EXPECT_EQ(place(facts, o), (Counts{2, 2}));
  size_t costs_seen = 0;
  o.place = [&](const std::vector<double>& costs, const PipelineShape& shape) {
    costs_seen = costs.size();
    return shape.stages == 2 ? Counts{1, 3} : Counts{};
  };
  EXPECT_EQ(place(facts, o), (Counts{1, 3}));
  EXPECT_EQ(costs_seen, 4U);
  o.mesh.pp = 1;  // one stage holds all
  EXPECT_EQ(place(facts, o), (Counts{4}));
  o.mesh.pp = 2;
  o.placement = "3,1";
  EXPECT_EQ(place(facts, o), (Counts{3, 1}));

  o.placement = "";
  o.place = [](auto&, auto&) { return Counts{1, 1}; };  // not "two between the ends"
  test::expect_error([&] { place(facts, o); }, {"placement", "1,1, adds up to 2", "the 4 layers"},
                     Exit::config);
  o.place = [](auto&, auto&) { return Counts{4, 0}; };
  test::expect_error([&] { place(facts, o); }, {"placement: 4,0 leaves the last stage"},
                     Exit::config);
  o.place = [](auto&, auto&) { return Counts{4}; };
  test::expect_error([&] { place(facts, o); }, {"placement: 4 has 1 counts"}, Exit::config);
}

/// A plan asks once for each shape: as many virtual stages may be other stages.
TEST(OwnPlacement, IsThatOfEachShapeInAPlan) {
  Task task = test::task_of();
  Hardware hardware = hardware_named("cpu");
  StepTimes times(task, hardware);
  StepOptions o = test::tiny_options({.dp = 1, .pp = 2}).step;
  o.schedule = "zb-v", o.chunks = 2;
  o.place = [](auto&, const PipelineShape& shape) {
    return shape.placement == Placement::v ? Counts{2, 0, 1, 1} : Counts{1, 1, 1, 1};
  };
  EXPECT_EQ(times.placement(o), (Counts{2, 0, 1, 1}));
  o.schedule = "interleaved";
  EXPECT_EQ(times.placement(o), (Counts{1, 1, 1, 1}));
}

}  // namespace
}  // namespace triax::parallel
