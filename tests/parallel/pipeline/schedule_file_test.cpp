#include "parallel/pipeline/synthesis/schedule_file.h"

#include <gtest/gtest.h>

#include "parallel/pipeline/check_schedule.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

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
           Damage{"[1,1.1,0.7,0.1]", "[1,0,0.7,0.1]", "times 1,0,0.7,0.1; expected"},
           Damage{"[1,1.1,0.7,0.1]", "[2,1.1,0.7,0.1]", "cost of the schedule is"},
           Damage{"\"cost\":", "\"cost\":1", "; the lists cost"},
           Damage{"\"bound\":", "\"bound\":1", "; what is proven is"},
           Damage{"\"bound\":", "\"bound\":0,\"was\":", "is 0; what is proven is"},
           Damage{"\"bound\":", "\"bound\":-", "; what is proven is"},
           Damage{"F0.0 F0.1", "F0.0 F0.9", "micro-batch 9, chunk 0 does not exist"},
           Damage{"F0.0 F0.1", "F0.0 F0.0", "forward of micro-batch 0, chunk 0 again"},
           Damage{"F0.0 F0.1", "B0.0 F0.1", "before its forward"},
           Damage{"F0.0 F0.1", "F0.0 ", "has `` at position 1"},
           Damage{"F0.0 F0.1", "F0.0 I0.1", "has `I0.1` at position 1; expected F, A, B or W"},
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

}  // namespace
}  // namespace triax::parallel
