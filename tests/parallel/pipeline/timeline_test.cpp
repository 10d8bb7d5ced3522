#include "parallel/pipeline/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parallel/pipeline/check_schedule.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

using nlohmann::json;

/// A schedule that has no name in `schedule_names`: one micro-batch after another.
Actions one_by_one(const PipelineShape& shape, int) {
  Actions list;
  for (int m = 0; m < shape.micros; ++m) {
    list.push_back({Action::forward, 0, m});
    list.push_back({Action::backward, 0, m});
  }
  return list;
}

TEST(Timeline, JsonSaysWhatTheSimulatorSays) {
  PipelineShape shape{.stages = 3, .chunks = 2, .micros = 5};
  json all = json::parse(timeline_json(
      make_timeline("mine", zb_interleaved, shape,
                    {.forward = 2, .backward_input = 3, .backward_weight = 1, .latency = 0.25})));
  Simulation simulated =
      simulate(lists_of(zb_interleaved, shape), shape,
               {.forward = 1, .backward_input = 1.5, .backward_weight = 0.5, .latency = 0.25});

  ASSERT_EQ(all["actions"].size(), simulated.actions.size());
  for (size_t i = 0; i < simulated.actions.size(); ++i) {
    const auto& [stage, a, begin, end] = simulated.actions[i];
    json expected{{"stage", stage},   {"kind", name(a.kind)}, {"chunk", a.chunk},
                  {"micro", a.micro}, {"begin", begin},       {"end", end}};
    EXPECT_EQ(all["actions"][i], expected);
  }
  EXPECT_EQ(all["name"], "mine");
  EXPECT_EQ(all["stages"], 3);
  EXPECT_EQ(all["chunks"], 2);
  EXPECT_EQ(all["micros"], 5);
  EXPECT_EQ(all["time"], simulated.time);
  EXPECT_EQ(all["idle"], simulated.idle);
  EXPECT_EQ(all["bubble"], *std::max_element(simulated.idle.begin(), simulated.idle.end()));
  EXPECT_EQ(all["peak_live"], check_schedule(zb_interleaved, shape));
  // 5 micro-batches pass the 5 boundaries of 6 virtual stages, up and down.
  EXPECT_EQ(all["handovers"].size(), 50u);
  json first{{"kind", "activation"}, {"micro", 0}, {"from", 0}, {"to", 1}};
  EXPECT_EQ(all["handovers"][0], first);
}

TEST(Timeline, TextOfAScheduleWithoutAName) {
  EXPECT_EQ(timeline_text(make_timeline("one by one", one_by_one, {.stages = 2, .micros = 2})),
            "one by one: 2 stages, 2 micro-batches\n"
            "\n"
            "          live  time 0\n"
            "stage 0      1  F0 .  .  .  B0--- F1 .  .  .  B1---\n"
            "stage 1      1  .  F0 B0--- .  .  .  F1 B1--- .  .\n"
            "\n"
            "bubble 6 of 12 (50%)\n"
            "F forward, B backward, . idle\n"
            "live: most activations held at once\n");
}

TEST(Timeline, TextGoesOnInFurtherBlocksWhereColumnsEnd) {
  auto timeline = make_timeline("1f1b", one_f_one_b, {.stages = 2, .micros = 2});
  EXPECT_EQ(timeline_text(timeline, 33),
            "1f1b: 2 stages, 2 micro-batches\n"
            "\n"
            "          live  time 0\n"
            "stage 0      2  F0 F1 .  .  B0-\n"
            "stage 1      1  .  F0 B0--- F1\n"
            "\n"
            "          live  time 5\n"
            "stage 0      2  -- .  B1---\n"
            "stage 1      1  B1--- .  .\n"
            "\n"
            "bubble 3 of 9 (33%)\n"
            "F forward, B backward, . idle\n"
            "live: most activations held at once\n");
  // However narrow, a cell fits.
  EXPECT_NE(timeline_text(timeline, 1).find("time 8"), std::string::npos);
}

TEST(Timeline, RefusesAWrongSchedule) {
  auto wrong = [](const PipelineShape&, int) { return Actions{{Action::forward, 0, 0}}; };
  test::expect_config_error([&] { make_timeline("wrong", wrong, {}); }, {"expected"});
}

}  // namespace
}  // namespace triax::parallel
