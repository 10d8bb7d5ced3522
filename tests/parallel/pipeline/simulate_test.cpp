#include "triax/parallel/pipeline/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"
#include "triax/parallel/pipeline/check_schedule.h"
#include "triax/parallel/pipeline/timeline.h"

namespace triax::parallel::simulate_test {

using nlohmann::json;

Simulation run(const Schedule& schedule, const PipelineShape& shape,
               const Durations& durations = {}) {
  return simulate(lists_of(schedule, shape), shape, durations);
}

/// Idle time of every stage, forward, input and weight of a whole stage taking 1 each.
double bubble(const Schedule& schedule, const PipelineShape& shape) {
  double part = 1.0 / shape.chunks;
  Durations each{.forward = part, .backward_input = part, .backward_weight = part};
  Simulation s = run(schedule, shape, each);
  for (double idle : s.idle) EXPECT_NEAR(idle, s.time - 3 * shape.micros, 1e-9);
  return s.time - 3 * shape.micros;
}

TEST(Simulate, Bubbles) {
  for (int p : {1, 2, 3, 4, 5, 8})
    for (int rounds : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "stages " << p << " micros " << rounds * p);
      PipelineShape plain{.stages = p, .micros = rounds * p}, chunked = plain;
      chunked.chunks = 2;
      EXPECT_DOUBLE_EQ(bubble(gpipe, plain), 3 * (p - 1));
      EXPECT_DOUBLE_EQ(bubble(one_f_one_b, plain), 3 * (p - 1));
      EXPECT_DOUBLE_EQ(bubble(zb_h1, plain), p - 1);
      EXPECT_DOUBLE_EQ(bubble(interleaved, chunked), 1.5 * (p - 1));
      EXPECT_DOUBLE_EQ(bubble(zb_interleaved, chunked), 0.5 * (p - 1));
    }
}

/// Idle time of the stage with the longest span, from its first action to its last; with F, B, W of
/// a whole stage.
double waits(const Schedule& schedule, PipelineShape shape, const Durations& stage) {
  shape.chunks = schedule.chunks, shape.placement = schedule.placement;
  double n = shape.chunks, longest = 0;
  Simulation s =
      run(schedule, shape,
          {stage.forward / n, stage.backward_input / n, stage.backward_weight / n, stage.latency});
  for (int stage_of = 0; stage_of < shape.stages; ++stage_of) {
    double begin = s.time, end = 0;
    for (const TimedAction& a : s.actions)
      if (a.stage == stage_of) begin = std::min(begin, a.begin), end = std::max(end, a.end);
    longest = std::max(longest, end - begin);
  }
  return longest - shape.micros * (stage.forward + stage.backward_input + stage.backward_weight);
}

// None from a stage's first action to its last, as their papers count. The step as a whole has that
// of the last stage, which begins when the others have passed the first micro-batch on.
TEST(Simulate, ZeroBubbles) {
  for (int p : {1, 2, 3, 4, 5, 8, 16})
    for (int micros : {2 * p - 1, 2 * p, 3 * p, 4 * p + 1, 7 * p}) {
      PipelineShape shape{.stages = p, .micros = micros};
      SCOPED_TRACE(testing::Message() << "stages " << p << " micros " << micros);
      EXPECT_NEAR(waits(schedule_named("zb-v"), shape, {}), 0, 1e-9);
      PipelineShape v{p, 2, micros, Placement::v};
      EXPECT_DOUBLE_EQ(bubble(zb_v, v), 0.5 * (p - 1));
      if (micros < 3 * p) continue;
      EXPECT_NEAR(waits(zb_2p, shape, {}), 0, 1e-9);
      EXPECT_DOUBLE_EQ(bubble(zb_2p, shape), p - 1);
    }
}

// About a half and two thirds of 3 (p - 1), the bubble of 1F1B: the difference is constant.
TEST(Simulate, BubblesOfBuildingBlocks) {
  for (int p : {3, 4, 5, 6, 7, 8, 9, 16})
    for (int micros : {3 * p, 5 * p + 1}) {
      SCOPED_TRACE(testing::Message() << "stages " << p << " micros " << micros);
      PipelineShape v{p, 2, micros, Placement::v};
      const double beyond[] = {6, 5, 9};
      EXPECT_DOUBLE_EQ(bubble(schedule_named("v-half"), v), 0.5 * (3 * p - (p % 2 == 0 ? 7 : 4)));
      EXPECT_DOUBLE_EQ(bubble(schedule_named("v-min"), v), 0.5 * (4 * p - beyond[p % 3]));
      EXPECT_LE(bubble(schedule_named("1f1b-v"), v), 3 * (p - 1));
    }
}

// (PP/2 - 1) (F&B + B - 3 W) with PP = 2 p, for chunks of F, B = F + W, W and F&B, which overlap,
// as long as the longer, B: the table of github.com/deepseek-ai/DualPipe.
TEST(Simulate, BubbleOfDualPipeV) {
  for (int p : {1, 2, 3, 4, 8, 16})
    for (int micros : {2 * p, 2 * p + 1, 5 * p})
      for (double weight : {0.5, 0.75, 1.0}) {
        SCOPED_TRACE(testing::Message() << "stages " << p << " micros " << micros);
        double chunk = 0.5, both = chunk * (1 + weight);
        EXPECT_NEAR(waits(schedule_named("dualpipev"), {.stages = p, .micros = micros},
                          {.backward_weight = weight}),
                    (p - 1) * (both + both - 3 * chunk * weight), 1e-9);
      }
}

TEST(Simulate, TwoStagesByHand) {
  Simulation s = run(one_f_one_b, {.stages = 2, .micros = 1},
                     {.forward = 1, .backward_input = 2, .latency = 10});
  auto times = [&](size_t i) { return std::pair(s.actions[i].begin, s.actions[i].end); };
  ASSERT_EQ(s.actions.size(), 4u);
  EXPECT_EQ(times(0), std::pair(0., 1.));    // stage 0, forward
  EXPECT_EQ(times(1), std::pair(25., 28.));  // stage 0, backward
  EXPECT_EQ(times(2), std::pair(11., 12.));  // stage 1, forward
  EXPECT_EQ(times(3), std::pair(12., 15.));  // stage 1, backward
  EXPECT_EQ(s.time, 28);
  EXPECT_EQ(s.idle, (std::vector<double>{24, 24}));
  EXPECT_FALSE(s.deadlock());
}

/// An action begins when its stage is free and, if it receives, `latency` after the sender was
/// ready and the receive posted, with the beginning of the action that took what came before on
/// that channel: no earlier, and no later.
TEST(Simulate, ActionsBeginWhenTheyCan) {
  for (double latency : {0.0, 0.25})
    for (const test::Case& c : test::cases()) {
      if (c.shape.stages == 1) continue;
      SCOPED_TRACE(c.str());
      Durations d{.forward = 1, .backward_input = 1.5, .backward_weight = 0.75, .latency = latency};
      Simulation s = run(schedule_named(c.name), c.shape, d);
      std::map<Handover, double> sent;
      for (const TimedAction& a : s.actions)
        if (auto t = sent_by(c.shape, a.stage, a.action)) sent[*t] = a.end;
      std::vector<double> free(size_t(c.shape.stages));
      std::map<std::tuple<int, int, int>, double> posted;
      for (const TimedAction& a : s.actions) {
        double begin = free[size_t(a.stage)];
        if (auto t = received_by(c.shape, a.stage, a.action); t && stays(c.shape, *t)) {
          begin = std::max(begin, sent.at(*t));
        } else if (t) {
          double& next = posted[{a.stage, link_of(c.shape, *t), t->kind}];
          begin = next = std::max(begin, std::max(sent.at(*t), next) + latency);
        }
        ASSERT_DOUBLE_EQ(a.begin, begin);
        free[size_t(a.stage)] = a.end;
      }
    }
}

TEST(Simulate, SaysWhichSendNobodyTakes) {
  PipelineShape shape{.stages = 2, .micros = 1};
  std::vector<Actions> lists{{{Action::forward, 0, 0}}, {}};
  Simulation s = simulate(lists, shape);
  EXPECT_EQ(describe_deadlock(s, lists),
            "stage 0, at the end of its list, waits for stage 1 to take the activation of "
            "micro-batch 0 from virtual stage 0 to 1; stage 1 has ended");
}

TEST(Simulate, OneStageWaitsForItself) {
  PipelineShape shape{.stages = 1, .chunks = 2, .micros = 1};
  std::vector<Actions> lists{{{Action::forward, 1, 0}, {Action::forward, 0, 0}}};
  EXPECT_EQ(
      describe_deadlock(simulate(lists, shape), lists),
      "stage 0, position 0 (forward of micro-batch 0, chunk 1), waits for stage 0 to send the "
      "activation of micro-batch 0 from virtual stage 0 to 1");
}

TEST(Simulate, RefusesAnotherNumberOfLists) {
  test::expect_error([] { simulate({{}}, {.stages = 2}); },
                     {"simulate: 1 lists for 2 stages; expected one each"});
}

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
  json all = json::parse(timeline_json(make_timeline(
      "mine", zb_interleaved, shape,
      equal_stages(shape,
                   {.forward = 2, .backward_input = 3, .backward_weight = 1, .latency = 0.25}))));
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

}  // namespace triax::parallel::simulate_test
