#include "triax/parallel/pipeline/schedule.h"

#include <gtest/gtest.h>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"
#include "triax/parallel/pipeline/check_schedule.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"

namespace triax::parallel::schedule_test {

using namespace test;

TEST(Schedule, ListsAsInThePapers) {
  EXPECT_EQ(text(gpipe({.stages = 2, .micros = 3}, 1)), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  PipelineShape three{.stages = 3, .micros = 4};
  EXPECT_EQ(text(one_f_one_b(three, 0)), "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3");
  EXPECT_EQ(text(one_f_one_b(three, 1)), "F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3");
  EXPECT_EQ(text(one_f_one_b(three, 2)), "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3");
  EXPECT_EQ(text(zb_h1({.stages = 2, .micros = 2}, 0)), "F0.0 F0.1 I0.0 W0.0 I0.1 W0.1");
  EXPECT_EQ(text(zb_h1({.stages = 2, .micros = 2}, 1)), "F0.0 I0.0 F0.1 I0.1 W0.0 W0.1");
  EXPECT_EQ(text(interleaved({.stages = 2, .chunks = 2, .micros = 2}, 0)),
            "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1");
  EXPECT_EQ(text(interleaved({.stages = 2, .chunks = 2, .micros = 2}, 1)),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1");
  EXPECT_EQ(text(forward_only({.stages = 2, .chunks = 2, .micros = 5}, 1)),
            "F0.0 F0.1 F1.0 F1.1 F0.2 F0.3 F0.4 F1.2 F1.3 F1.4");
}

TEST(Schedule, ListsInAV) {
  PipelineShape v{2, 2, 3, Placement::v};
  EXPECT_EQ(text(zb_v(v, 0)),
            "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I1.1 W1.1 I0.0 W0.0 F1.2 I1.2 W1.2 I0.1 W0.1 I0.2 "
            "W0.2");
  EXPECT_EQ(text(zb_v(v, 1)),
            "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0 F1.2 I1.1 W1.1 I0.1 I1.2 I0.2 W0.1 W1.2 "
            "W0.2");
  PipelineShape dual{2, 2, 4, Placement::v};
  EXPECT_EQ(text(dualpipev(dual, 0)),
            "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 F0.3 B1.1 F1.2 B0.0 B1.2 F1.3 B0.1 B1.3 I0.2 W0.2 "
            "I0.3 W0.3");
  EXPECT_EQ(text(dualpipev(dual, 1)),
            "F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 F1.2 B0.0 F0.3 B1.1 F1.3 B0.1 B1.2 B0.2 I1.3 I0.3 W1.3 "
            "W0.3");
}

/// The last stage turns both ways; its weights come while the others pass a micro-batch on.
TEST(Schedule, BlocksRepeat) {
  PipelineShape v{3, 2, 4, Placement::v};
  EXPECT_EQ(text(lists_of(schedule_named("v-min"), v)[2]),
            "F0.0 F1.0 F0.1 F1.1 I1.0 I0.0 W1.0 W0.0 F0.2 F1.2 I1.1 I0.1 W1.1 F0.3 W0.1 F1.3 I1.2 "
            "I0.2 W1.2 W0.2 I1.3 I0.3 W1.3 W0.3");
  for (int stage = 0; stage < 3; ++stage)
    EXPECT_EQ(schedule_named("v-half")(v, stage), v_half(v)[size_t(stage)]);
}

TEST(Schedule, OfOneStageAccumulatesGradients) {
  PipelineShape one{.micros = 2};
  EXPECT_EQ(text(one_f_one_b(one, 0)), "F0.0 B0.0 F0.1 B0.1");
  EXPECT_EQ(text(zb_h1(one, 0)), "F0.0 I0.0 W0.0 F0.1 I0.1 W0.1");
}

TEST(Schedule, EveryOneIsRightOnEveryShape) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.str());
    ASSERT_NO_THROW(check_schedule(schedule_named(c.name), c.shape));
  }
}

TEST(Schedule, ForwardOnlyIsRightOnEveryShape) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.str());
    std::vector<int> peak;
    ASSERT_NO_THROW(peak = check_schedule(forward_only, c.shape, nn::Purpose::inference));
    for (int live : peak) ASSERT_EQ(live, 1);
  }
}

TEST(Schedule, LiveActivations) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.str());
    auto [stages, chunks, micros, placement] = c.shape;
    auto peak = check_schedule(schedule_named(c.name), c.shape);
    for (int s = 0; s < stages; ++s) {
      int live = peak[size_t(s)];
      int all = chunks * micros, ahead = stages - s - 1;
      if (c.name == "gpipe") {
        EXPECT_EQ(live, all);
      }
      if (c.name == "1f1b") {
        EXPECT_EQ(live, std::min(ahead + 1, all));
      }
      if (c.name == "zb-h1") {
        EXPECT_EQ(live, std::min(stages, all));
      }
      if (c.name == "interleaved" && chunks > 1 && micros % stages == 0) {
        EXPECT_EQ(live, std::min(2 * ahead + (chunks - 1) * stages + 1, all));
      }
      if (c.name == "zb-interleaved" && chunks > 1 && micros % stages == 0) {
        EXPECT_EQ(live, std::min(2 * ahead + (chunks - 1) * stages + 1 + s, all));
      }
      if (c.name == "zb-2p") {
        EXPECT_EQ(live, std::min(2 * ahead + 1 + s * std::min(4 * stages, micros) / stages, all));
      }
      if (c.name == "zb-v" && micros >= 2 * stages - 1) {
        EXPECT_EQ(live, 2 * stages);
      }
      if (c.name == "v-half" && micros >= 2 * stages) {
        EXPECT_LE(live, (stages + 2) / 2 * 2);
      }
      if (c.name == "v-min" && micros >= 2 * stages) {
        EXPECT_LE(live, (stages + 4) / 3 * 2);
      }
      if (c.name == "1f1b-v" && micros >= 2 * stages) {
        EXPECT_LE(live, 2 * ((2 * stages + 2) / 3 + (stages % 3 == 0)));
      }
      if (c.name == "dualpipev" && micros >= 2 * stages) {
        EXPECT_EQ(live, 2 * stages + 1);
      }
    }
  }
}

TEST(Schedule, InterleavedOverOneChunkIsPlain) {
  PipelineShape shape{.stages = 4, .micros = 10};
  for (int s = 0; s < 4; ++s) {
    EXPECT_EQ(interleaved(shape, s), one_f_one_b(shape, s));
    EXPECT_EQ(zb_interleaved(shape, s), zb_h1(shape, s));
  }
}

TEST(Schedule, SplitBackwardPutsOffOnlyWeights) {
  Actions whole = one_f_one_b({.stages = 2, .micros = 3}, 0);
  EXPECT_EQ(text(split_backward(whole, 0)), "F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2");
  EXPECT_EQ(text(split_backward(whole, 1)), "F0.0 F0.1 I0.0 F0.2 I0.1 W0.0 I0.2 W0.1 W0.2");
  EXPECT_EQ(text(split_backward(whole, 99)), "F0.0 F0.1 I0.0 F0.2 I0.1 I0.2 W0.0 W0.1 W0.2");
  expect_error([&] { split_backward(whole, -1); },
               {"split_backward: delay -1; expected at least 0"});
}

TEST(Schedule, ByName) {
  PipelineShape shape{.stages = 2, .micros = 3};
  for (int s : {0, 1}) {
    EXPECT_EQ(schedule_named("gpipe")(shape, s), gpipe(shape, s));
    EXPECT_EQ(schedule_named("1f1b")(shape, s), one_f_one_b(shape, s));
    EXPECT_EQ(schedule_named("zb-h1")(shape, s), zb_h1(shape, s));
  }
  PipelineShape chunked{.stages = 2, .chunks = 2, .micros = 3};
  EXPECT_EQ(schedule_named("interleaved")(chunked, 1), interleaved(chunked, 1));
  EXPECT_EQ(schedule_named("zb-interleaved")(chunked, 1), zb_interleaved(chunked, 1));
  expect_config_error(
      [] { schedule_named("1F1B"); },
      {"schedule: unknown name `1F1B`; expected one of gpipe, 1f1b, interleaved, zb-h1, "
       "zb-interleaved, zb-2p, 1f1b-v, v-min, v-half, zb-v, dualpipev"});
}

TEST(Schedule, RefusesShapes) {
  PipelineShape chunked{.stages = 2, .chunks = 2, .micros = 4};
  expect_config_error([&] { one_f_one_b(chunked, 0); },
                      {"schedule 1f1b: 2 chunks a stage; expected 1, or --schedule interleaved"});
  expect_config_error(
      [&] { zb_h1(chunked, 0); },
      {"schedule zb-h1: 2 chunks a stage; expected 1, or --schedule zb-interleaved"});
  expect_config_error([&] { zb_2p(chunked, 0); },
                      {"schedule zb-2p: 2 chunks a stage; expected 1, or --schedule zb-v"});
  for (std::string name : {"1f1b-v", "v-min", "v-half", "zb-v", "dualpipev"}) {
    auto schedule = schedule_named(name);
    expect_config_error([&] { schedule({.stages = 2, .micros = 4}, 0); },
                        {"schedule " + name + ": 1 chunk a stage; expected 2, down and up the V"});
    expect_config_error(
        [&] { schedule(chunked, 0); },
        {"schedule " + name +
         ": the pieces of the model go round the ring of stages; expected them in a V"});
  }
  for (const std::string& name : schedule_names()) {
    expect_config_error(
        [&] { schedule_named(name)({.stages = 4, .micros = 0}, 0); },
        {"schedule " + name +
         ": 4 stages, 1 chunks a stage, 0 micro-batches; expected at least 1 each"});
    expect_error([&] { schedule_named(name)({.stages = 4, .micros = 8}, 4); },
                 {"schedule " + name + ": stage 4; expected 0 to 3"});
  }
  expect_config_error([] { lists_of(gpipe, {.stages = 0}); }, {"schedule: 0 stages,"});
  expect_config_error([] { lists_of({}, {}); }, {"schedule: an empty function"});
}

TEST(Schedule, HandoversGoRoundTheRing) {
  PipelineShape s{.stages = 3, .chunks = 2, .micros = 4};
  Handover up{.kind = Handover::activation, .from = 2, .to = 3, .micro = 1};
  Handover down{.kind = Handover::gradient, .from = 3, .to = 2, .micro = 1};
  EXPECT_EQ(sent_by(s, 2, {Action::forward, 0, 1}), up);
  EXPECT_EQ(received_by(s, 0, {Action::forward, 1, 1}), up);
  EXPECT_EQ(sent_by(s, 0, {Action::backward, 1, 1}), down);
  EXPECT_EQ(sent_by(s, 0, {Action::backward_input, 1, 1}), down);
  EXPECT_EQ(received_by(s, 2, {Action::backward_input, 0, 1}), down);
  EXPECT_EQ(link_of(s, up), 2);
  EXPECT_EQ(link_of(s, down), 2);
  EXPECT_EQ(str(up), "activation of micro-batch 1 from virtual stage 2 to 3");
  for (Action::Kind kind : {Action::forward, Action::backward}) {  // the ends of the model
    bool forward = kind == Action::forward;
    EXPECT_EQ(received_by(s, forward ? 0 : 2, {kind, forward ? 0 : 1, 1}), std::nullopt);
    EXPECT_EQ(sent_by(s, forward ? 2 : 0, {kind, forward ? 1 : 0, 1}), std::nullopt);
  }
  EXPECT_EQ(received_by(s, 1, {Action::backward_weight, 0, 1}), std::nullopt);
  EXPECT_EQ(sent_by(s, 1, {Action::backward_weight, 0, 1}), std::nullopt);
}

// Stage s holds the pieces s and 2 * stages - 1 - s; each cut has a link of its own.
TEST(Schedule, HandoversInAVTurnAtTheLastStage) {
  PipelineShape v{3, 2, 4, Placement::v};
  const int stages[] = {0, 1, 2, 2, 1, 0};
  for (int at = 0; at < 6; ++at) {
    EXPECT_EQ(v.stage_of(at), stages[at]);
    EXPECT_EQ(v.virtual_stage(stages[at], at / 3), at);
  }
  EXPECT_EQ(v.last_stage(), 0);
  EXPECT_EQ((PipelineShape{3, 3, 4, Placement::v}.last_stage()), 2);
  Handover up{.kind = Handover::activation, .from = 1, .to = 2, .micro = 1}, turn = up, down = up;
  turn.from = 2, turn.to = 3, down.from = 3, down.to = 4;
  EXPECT_EQ(sent_by(v, 1, {Action::forward, 0, 1}), up);
  EXPECT_EQ(sent_by(v, 2, {Action::forward, 0, 1}), turn);
  EXPECT_EQ(received_by(v, 2, {Action::forward, 1, 1}), turn);
  EXPECT_EQ(received_by(v, 1, {Action::forward, 1, 1}), down);
  EXPECT_FALSE(stays(v, up));
  EXPECT_TRUE(stays(v, turn));
  EXPECT_FALSE(stays(v, down));
  EXPECT_EQ(link_of(v, up), 1);
  EXPECT_EQ(link_of(v, down), 3);
  EXPECT_EQ(sent_by(v, 0, {Action::forward, 1, 1}), std::nullopt);
  EXPECT_EQ(received_by(v, 0, {Action::backward, 1, 1}), std::nullopt);
}

ScheduleFile zb_h1_of(int stages, int micros) {
  PipelineShape shape{.stages = stages, .micros = micros};
  ScheduleFile f{.shape = shape, .times = equal_stages(shape, {1, 1.1, 0.7, 0.1})};
  f.budget = {.cap = std::vector<double>(size_t(stages), stages), .hold = 0.3};
  f.lists = lists_of(zb_h1, shape);
  f.cost = cost_of(simulate(f.lists, shape, f.times), f.budget.objective);
  f.bound = lower_bound(shape, f.times, f.budget);
  return f;
}

TEST(ScheduleFile, ReadsWhatItWrote) {
  for (auto objective : {Budget::longest_stage, Budget::makespan}) {
    ScheduleFile f = zb_h1_of(3, 12);
    f.budget.objective = objective;
    f.cost = cost_of(simulate(f.lists, f.shape, f.times), objective);
    f.bound = lower_bound(f.shape, f.times, f.budget);
    ScheduleFile read = parse_schedule(schedule_json(f), "some.json");
    EXPECT_EQ(read.shape, f.shape);
    EXPECT_EQ(read.lists, f.lists);
    EXPECT_EQ(read.cost, f.cost);
    EXPECT_EQ(read.bound, f.bound);
    EXPECT_EQ(read.budget.cap, f.budget.cap);
    EXPECT_EQ(read.budget.hold, f.budget.hold);
    EXPECT_EQ(read.budget.objective, objective);
    EXPECT_EQ(read.times[1].latency, 0.1);
    EXPECT_EQ(schedule_json(read), schedule_json(f));
  }
}

/// One place of a good file changed: what is said then.
TEST(ScheduleFile, RefusesDamage) {
  const std::string good = schedule_json(zb_h1_of(2, 2));
  struct Damage {
    const char *from, *to, *says;
  };
  for (const Damage& d : {
           Damage{"\"stages\":2", "\"stages\":0", "stages of the schedule is 0"},
           Damage{"\"stages\":2", "\"stages\":3", "lists of the schedule are 2; expected 3"},
           Damage{"\"stages\":2", "\"stages\":1", "is not an array of at most 1"},
           Damage{"\"stages\":2", "\"stages\":2000000", "is not a number from 0 to 1024"},
           Damage{"\"micros\":2", "\"micros\":4", "no forward of micro-batch 2"},
           Damage{"\"micros\":2", "\"micros\":1", "expected micro-batches 0 to 0"},
           Damage{"\"micros\":2", "\"micros\":-1", "is not a number from 0 to 4096"},
           Damage{"\"chunks\":1", "\"chunks\":2", "times of 2 stages and chunks; expected 4"},
           Damage{"\"ring\"", "\"spiral\"", "placement of the schedule is not `ring` or `v`"},
           Damage{"\"span\"", "\"speed\"", "is not `span` or `makespan`"},
           Damage{"\"hold\":0.3", "\"hold\":-1", "hold -1; expected 0 to 1000"},
           Damage{"\"cap\":[2,2]", "\"cap\":[2]", "memory of 1 stages; expected of 2"},
           Damage{"\"cap\":[2,2]", "\"cap\":[1,2]",
                  "hold 2 activations on stage 0; expected at "
                  "most its cap, 1"},
           Damage{"[1,1.1,0.7,0.1]", "[1,1.1,0.7]", "is not [forward, input, weight, latency]"},
           Damage{"[1,1.1,0.7,0.1]", "[1,0,0.7,0.1]", "times 1,0,0.7,0.1,0; expected"},
           Damage{"[1,1.1,0.7,0.1]", "[2,1.1,0.7,0.1]", "cost of the schedule is"},
           Damage{"\"cost\":", "\"cost\":1", "; the lists cost"},
           Damage{"\"bound\":", "\"bound\":1", "; what is proven is"},
           Damage{"\"bound\":", "\"bound\":0,\"was\":", "is 0; what is proven is"},
           Damage{"\"bound\":", "\"bound\":-", "; what is proven is"},
           Damage{"F0.0 F0.1", "F0.0 F0.9", "micro-batch 9, chunk 0 does not exist"},
           Damage{"F0.0 F0.1", "F0.0 F0.0", "forward of micro-batch 0, chunk 0 again"},
           Damage{"F0.0 F0.1", "B0.0 F0.1", "before its forward"},
           Damage{"F0.0 F0.1", "F0.0 ", "has `` at position 1"},
           Damage{"F0.0 F0.1", "F0.0 I0.1",
                  "has `I0.1` at position 1; expected F, A, B, W, O or R"},
           Damage{"F0.0 F0.1", "F0.0 F0.1x", "has `F0.1x`"},
           Damage{"F0.0 F0.1", "F0.0 F.1", "has `F.1`"},
           Damage{"F0.0 F0.1", "F0.0 F0.99999999999", "has `F0.99999999999`"},
           Damage{"F0.0 F0.1", "F0.1 F0.0", "expected receives in the order of sends"},
           Damage{"\"lists\"", "\"list\"", "has no lists"},
           Damage{"{", "", "does not start with an open brace"},
       }) {
    std::string bad = good;
    size_t at = bad.find(d.from);
    ASSERT_NE(at, bad.npos) << d.from << " in " << good;
    bad.replace(at, std::string(d.from).size(), d.to);
    test::expect_data_error([&] { parse_schedule(bad, "some.json"); }, {"some.json", d.says});
  }
  for (size_t size = 0; size + 2 < good.size(); ++size)  // without the last brace and newline
    test::expect_data_error([&] { parse_schedule(good.substr(0, size), "some.json"); },
                            {"some.json"});
}

TEST(ScheduleFile, RunsItsOwnShapeAlone) {
  ScheduleFile f = zb_h1_of(3, 6);
  Schedule schedule = schedule_from(f, "some.json");
  EXPECT_EQ(lists_of(schedule, f.shape), f.lists);
  EXPECT_EQ(check_schedule(schedule, f.shape), check_schedule(zb_h1, f.shape));
  test::expect_config_error(
      [&] { check_schedule(schedule, {.stages = 2, .micros = 6}); },
      {"schedule some.json: found for 3 stages, 1 chunk, 6 micro-batches; this run "
       "has 2, 1, 6",
       "--pp 3 --chunks 1", "schedule --search --pp 2 --micros 6"});
}

TEST(ScheduleFile, IsNotThere) {
  test::expect_error([] { read_schedule("/no/such/file.json"); }, {"/no/such/file.json"},
                     Exit::not_found);
  EXPECT_TRUE(is_schedule_file("runs/found.json"));
  EXPECT_FALSE(is_schedule_file("zb-h1"));
}

}  // namespace triax::parallel::schedule_test
