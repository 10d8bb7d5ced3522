#include "triax/parallel/pipeline/synthesis/synthesis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"

namespace triax::parallel::synthesis_test {

/// Table 6 of "Zero Bubble Pipeline Parallelism" (Qi et al. 2023): ms, of a whole stage.
struct Row {
  int stages, micros;
  Durations times;
};
constexpr Row rows[] = {
    {8, 24, {18.522, 18.086, 9.337, 0.601}},   {8, 32, {18.513, 18.086, 9.331, 0.626}},
    {8, 64, {18.546, 18.097, 9.321, 0.762}},   {8, 24, {29.718, 29.444, 19.927, 0.527}},
    {8, 32, {29.802, 29.428, 19.530, 0.577}},  {8, 64, {29.935, 29.621, 19.388, 0.535}},
    {16, 48, {11.347, 11.248, 8.132, 0.377}},  {16, 64, {11.307, 11.254, 8.101, 0.379}},
    {16, 128, {11.325, 11.308, 8.109, 0.378}}, {32, 96, {10.419, 10.207, 7.715, 0.408}},
    {32, 128, {10.408, 10.204, 7.703, 0.408}}, {32, 256, {10.402, 10.248, 7.698, 0.460}}};

/// `cap` in stages.
Budget budget(int stages, double cap, double hold = 0.5) {
  return {.cap = std::vector<double>(size_t(stages), cap * stages), .hold = hold};
}

double cost(const Schedule& schedule, const PipelineShape& shape, const StageTimes& times) {
  return cost_of(simulate(lists_of(schedule, shape), shape, times), Budget::longest_stage);
}

/// A hold next to nothing is as none.
TEST(Synthesis, BoundWhereNextToNothingIsHeld) {
  PipelineShape shape{.stages = 4, .micros = 8};
  StageTimes times = equal_stages(shape, {1, 1, 1, 0});
  for (double cap : {1., 1e9})
    for (double hold : {1e-19, 1e-10, 1e-300})
      EXPECT_NEAR(lower_bound(shape, times, budget(4, cap, hold)),
                  lower_bound(shape, times, budget(4, cap, 0)), 1e-6)
          << cap << " " << hold;
}

/// A bound that is met proves that nothing is better: the "ZB-H1 is optimal", 12 of 12.
TEST(Synthesis, ZbH1IsOptimalInTheMemoryOf1F1B) {
  for (const Row& row : rows) {
    PipelineShape shape{.stages = row.stages, .micros = row.micros};
    StageTimes times = equal_stages(shape, row.times);
    double bound = lower_bound(shape, times, budget(row.stages, 1));
    EXPECT_NEAR(cost(zb_h1, shape, times), bound, 1e-6 * bound)
        << row.stages << " stages, " << row.micros << " micro-batches";
  }
}

/// The bound holds for every schedule in the memory that it takes.
TEST(Synthesis, BoundIsNotAboveAnySchedule) {
  for (const test::Case& c : test::cases()) {
    SCOPED_TRACE(c.str());
    StageTimes times = equal_stages(c.shape, {3, 2.5, double(1 + c.shape.micros % 3), 0.2});
    times.front().forward *= 1 + c.shape.stages % 2;
    auto lists = lists_of(schedule_named(c.name), c.shape);
    for (double hold : {1., 0.5})
      for (auto objective : {Budget::longest_stage, Budget::makespan}) {
        Budget memory{peak_memory(lists, c.shape, hold), hold, objective};
        double cost = cost_of(simulate(lists, c.shape, times), objective);
        ASSERT_LE(lower_bound(c.shape, times, memory), cost * (1 + 1e-9));
      }
  }
}

/// The last forward of a stage still has to go all the way around: no schedule in this memory is
/// better, if all passes take the same time.
TEST(Synthesis, BuildingBlocksAreOptimalInTheirMemory) {
  for (auto [name, stages] : {std::pair{"v-half", 4},
                              {"v-half", 8},
                              {"v-half", 16},
                              {"v-min", 4},
                              {"v-min", 7},
                              {"v-min", 16}}) {
    PipelineShape shape{stages, 2, 4 * stages, Placement::v};
    StageTimes times = equal_stages(shape, {});
    double cap = name == std::string("v-half") ? (stages + 2) / 2 : (stages + 4) / 3;
    double bound = lower_bound(shape, times, budget(stages, cap / stages, 1));
    EXPECT_NEAR(cost(schedule_named(name), shape, times), bound, 1e-6 * bound)
        << name << " " << stages;
  }
}

/// Less than the memory of 1F1B: the search is no worse than any named schedule that fits.
TEST(Synthesis, InLittleMemory) {
  for (int stages : {4, 5, 8})
    for (double cap : {double((stages + 4) / 3), double((stages + 2) / 2), 0.75 * stages}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, cap " << cap);
      PipelineShape shape{stages, 2, 3 * stages, Placement::v};
      StageTimes times = equal_stages(shape, rows[3].times);
      Budget memory = budget(stages, cap / stages, 1);
      memory.tries = 1000;
      Synthesis found = synthesize(shape, times, memory, 1);
      EXPECT_LE(*std::ranges::max_element(found.peak), cap + 1e-9);
      for (auto name : {"v-min", "v-half", "zb-v"}) {
        auto lists = lists_of(schedule_named(name), shape);
        if (within(memory, peak_memory(lists, shape, 1))) {
          EXPECT_LE(found.cost, cost(schedule_named(name), shape, times) * (1 + 1e-9)) << name;
        }
      }
    }
}

TEST(Synthesis, MoreMemoryIsWorthMore) {
  const Row& row = rows[3];
  PipelineShape shape{.stages = row.stages, .micros = row.micros};
  StageTimes times = equal_stages(shape, row.times);
  auto bubble = [&](double cap) {
    Synthesis s = synthesize(shape, times, budget(row.stages, cap), 1);
    EXPECT_TRUE(s.optimal()) << cap << " p: " << s.cost << ", bound " << s.bound;
    EXPECT_NEAR(s.cost, cost_of(simulate(s.lists, shape, times), Budget::longest_stage), 1e-6);
    return 1 - busiest(shape, times) / s.cost;
  };
  EXPECT_NEAR(bubble(1), 0.1323, 0.6e-4);
  EXPECT_NEAR(bubble(1.5), 0.0475, 0.6e-4);
}

/// Two chunks a stage, in the memory of 1F1B: better than ZB-V, and than one chunk.
TEST(Synthesis, InAV) {
  const Row& row = rows[3];
  PipelineShape shape{row.stages, 2, row.micros, Placement::v};
  StageTimes times = equal_stages(shape, row.times);
  Budget memory = budget(row.stages, 1);
  memory.tries = 1500;
  Synthesis s = synthesize(shape, times, memory, 1);
  EXPECT_LT(s.cost, cost(zb_v, shape, times));
  EXPECT_GE(s.cost, s.bound * (1 - 1e-9));
  EXPECT_LE(*std::ranges::max_element(s.peak), row.stages + 1e-9);
  PipelineShape plain{.stages = row.stages, .micros = row.micros};
  EXPECT_LT(s.cost, lower_bound(plain, equal_stages(plain, row.times), memory));
}

/// Lists of sail-sg/zero-bubble-pipeline-parallelism (39f2c18), whose ZB-V places weights by
/// the given times, cost so much in our simulator. The search is no worse, with few tries.
TEST(Synthesis, NoWorseThanTheListsOfTheAuthorsOfZbV) {
  struct Cell {
    int stages, micros;
    Durations times;
    double bubble;
  };
  constexpr Durations unlike = {1, 1.2, 0.8, 0.02};
  for (const Cell& c : {Cell{4, 12, unlike, 0.03122},
                        {8, 8, unlike, 0.14347},
                        {16, 16, unlike, 0.15284},
                        {4, 12, {1, 1, 1, 0.02}, 0.00772},
                        {8, 8, {10.408, 10.204, 7.703, 0.408}, 0.16431},
                        {16, 16, {10.408, 10.204, 7.703, 0.408}, 0.17572}}) {
    PipelineShape shape{c.stages, 2, c.micros, Placement::v};
    StageTimes times = equal_stages(shape, c.times);
    Budget memory = budget(c.stages, 1, 1);
    memory.tries = 400;
    double found = synthesize(shape, times, memory, 1).cost;
    EXPECT_LE(1 - busiest(shape, times) / found, c.bubble + 0.0005)
        << c.stages << " stages, " << c.micros << " micro-batches, forward " << c.times.forward;
  }
}

/// ZB-H1 treats stages alike; here the last takes a fifth more.
TEST(Synthesis, UnequalStages) {
  const Row& row = rows[3];
  PipelineShape shape{.stages = row.stages, .micros = row.micros};
  StageTimes times = equal_stages(shape, row.times);
  Durations& last = times.back();
  for (double* t : {&last.forward, &last.backward_input, &last.backward_weight}) *t *= 1.2;
  Budget memory = budget(row.stages, 1);
  memory.tries = 4000;
  Synthesis s = synthesize(shape, times, memory, 1);
  double work = busiest(shape, times);
  EXPECT_LE(1 - work / s.cost, 0.5 * (1 - work / cost(zb_h1, shape, times)));
}

/// What memory lets a stage hold goes all the way there and back before the next.
TEST(Synthesis, OneAfterTheOtherWhereMemoryIsForOne) {
  PipelineShape shape{.stages = 4, .micros = 8};
  // Eight times forward and backward through four stages; with hold 1 weights come before the next.
  for (auto [hold, cost] : {std::pair{1., 8. * (4 + 4 + 1)}, {0., 8. * (4 + 4) + 1}}) {
    Budget memory = budget(4, 0.25, hold);
    memory.tries = 2000;
    Synthesis found = synthesize(shape, equal_stages(shape, {}), memory, 1);
    EXPECT_DOUBLE_EQ(found.cost, cost) << hold;
    EXPECT_TRUE(found.optimal()) << hold << " " << found.bound;
  }
}

/// A slow link is waited for on both ways.
TEST(Synthesis, UnequalLinks) {
  PipelineShape shape{.stages = 4, .micros = 8};
  StageTimes times = equal_stages(shape, {1, 1, 1, 0.1});
  times[1].latency = 2;
  Simulation s = simulate(lists_of(one_f_one_b, shape), shape, times);
  auto begin_of = [&](int stage) {
    return std::ranges::find(s.actions, stage, &TimedAction::stage)->begin;
  };
  EXPECT_NEAR(begin_of(1), 1.1, 1e-12);
  EXPECT_NEAR(begin_of(2), 4.1, 1e-12);
  EXPECT_NEAR(begin_of(3), 5.2, 1e-12);
  Synthesis found = synthesize(shape, times, budget(4, 1.5), 1);
  EXPECT_LT(found.cost, cost(zb_h1, shape, times));
  EXPECT_GE(found.cost, found.bound);
}

TEST(Synthesis, RepeatsItself) {
  PipelineShape shape{.stages = 8, .micros = 24};
  StageTimes times = equal_stages(shape, rows[0].times);
  Budget memory = budget(8, 1.25);
  memory.tries = 1500;
  Synthesis first = synthesize(shape, times, memory, 7),
            again = synthesize(shape, times, memory, 7);
  EXPECT_FALSE(first.optimal());  // or nothing would be annealed here
  EXPECT_EQ(first.lists, again.lists);
  EXPECT_NE(first.lists, synthesize(shape, times, memory, 8).lists);
}

TEST(Synthesis, TriesNoMoreSchedulesThanItMay) {
  PipelineShape shape{.stages = 8, .micros = 24};
  for (int64_t tries : {1, 2, 5, 20}) {
    Budget memory = budget(8, 1.25);
    memory.tries = tries;
    int64_t tried = 0;
    synthesize(shape, equal_stages(shape, rows[0].times), memory, 7,
               [&](double, double, double) { ++tried; });
    EXPECT_EQ(tried, tries);
  }
}

TEST(Synthesis, TellsHowFarItIs) {
  PipelineShape shape{.stages = 8, .micros = 24};
  StageTimes times = equal_stages(shape, rows[0].times);
  Budget memory = budget(8, 1.25);
  memory.tries = 1500;
  std::vector<double> shares, costs, bounds;
  Synthesis found =
      synthesize(shape, times, memory, 7, [&](double share, double cost, double bound) {
        shares.push_back(share), costs.push_back(cost), bounds.push_back(bound);
      });
  EXPECT_EQ(std::ssize(shares), memory.tries);
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_NEAR(shares.back(), 1, 1e-12);
  EXPECT_TRUE(std::ranges::is_sorted(costs, std::greater()));
  EXPECT_EQ(costs.back(), found.cost);
  EXPECT_EQ(bounds, std::vector(bounds.size(), found.bound));
  EXPECT_EQ(found.lists, synthesize(shape, times, memory, 7).lists);  // watched or not
}

/// Every list of one stage in which the passes of each kind are in order, and backwards are in
/// halves or, if they may be, whole.
void all_orders(int micros, Actions& list, std::array<int, 3> done, std::vector<Actions>& all,
                bool may_be_whole) {
  if (done[2] == micros) all.push_back(list);
  if (may_be_whole && done[1] < done[0] && done[2] == done[1]) {
    list.push_back({Action::backward, 0, done[1]});
    all_orders(micros, list, {done[0], done[1] + 1, done[2] + 1}, all, true);
    list.pop_back();
  }
  constexpr Action::Kind kinds[] = {Action::forward, Action::backward_input,
                                    Action::backward_weight};
  for (size_t k = 0; k < 3; ++k) {
    if (done[k] == (k == 0 ? micros : done[k - 1])) continue;
    list.push_back({kinds[k], 0, done[k]});
    std::array<int, 3> more = done;
    ++more[k];
    all_orders(micros, list, more, all, may_be_whole);
    list.pop_back();
  }
}

/// The cheapest of all lists there are within the caps.
double cheapest(const PipelineShape& shape, const StageTimes& times, const Budget& memory) {
  std::vector<Actions> all, fit;
  Actions list;
  all_orders(shape.micros, list, {}, all, memory.hold > 1);  // no use where halves take no more
  for (const Actions& order : all)                           // the caps are alike
    if (peak_memory({order}, shape, memory.hold)[0] <= memory.cap[0] + 1e-9) fit.push_back(order);
  std::vector<size_t> at(size_t(shape.stages));
  double best = 1e9;
  for (bool more = true; more;) {
    std::vector<Actions> lists;
    for (size_t i : at) lists.push_back(fit[i]);
    Simulation s = simulate(lists, shape, times);
    if (!s.deadlock()) best = std::min(best, cost_of(s, memory.objective));
    more = false;
    for (size_t stage = 0; stage < at.size() && !more; ++stage) {
      more = ++at[stage] < fit.size();
      if (!more) at[stage] = 0;
    }
  }
  return best;
}

TEST(Synthesis, FindsTheCheapestOfAllLists) {
  struct Small {
    int stages, micros;
    double cap, hold;
    Durations times;
  };
  for (const Small& c :
       {Small{2, 3, 2, 0.5, {1, 1, 1, 0}}, Small{2, 3, 1, 0.5, {1, 1, 1, 0.2}},
        Small{2, 4, 2, 1, {2, 3, 1, 0.5}}, Small{2, 3, 3, 0, {1, 2, 3, 1}},
        Small{3, 3, 1.5, 0.5, {1, 1, 0.5, 0.1}}, Small{2, 3, 1.5, 1.5, {1, 1, 1, 0}},
        Small{2, 4, 2.5, 1.25, {1, 2, 1, 0.3}}, Small{3, 3, 2, 1.25, {1, 1, 1, 0}},
        Small{2, 3, 21, 20, {1, 1, 1, 0}}, Small{2, 2, 2, 2, {1, 1, 0.2, 0}},
        Small{2, 4, 2, 1.82, {1, 1, 1, 0}}, Small{2, 3, 1, 1.25, {1, 2, 1, 0.1}}})
    for (auto objective : {Budget::longest_stage, Budget::makespan})
      for (double last : {1.0, 1.5}) {
        PipelineShape shape{.stages = c.stages, .micros = c.micros};
        StageTimes times = equal_stages(shape, c.times);
        times.back().forward *= last;
        Budget memory{.cap = std::vector<double>(size_t(c.stages), c.cap),
                      .hold = c.hold,
                      .objective = objective,
                      .tries = 4000};
        SCOPED_TRACE(testing::Message()
                     << c.stages << " stages, " << c.micros << " micro-batches, cap " << c.cap
                     << ", hold " << c.hold << ", " << name(objective) << ", last " << last);
        double best = cheapest(shape, times, memory);
        EXPECT_LE(lower_bound(shape, times, memory), best * (1 + 1e-9));
        EXPECT_NEAR(synthesize(shape, times, memory, 1).cost, best, 1e-9);
      }
}

/// Weights of both micro-batches that are held may wait for the last backward.
TEST(Synthesis, BoundWhereWeightsWait) {
  PipelineShape shape{.stages = 3, .micros = 3};
  StageTimes times = equal_stages(shape, {1, 0.1, 2, 0.5});
  Budget memory{.cap = {2, 2, 2}, .hold = 0.5};
  EXPECT_LE(lower_bound(shape, times, memory), cheapest(shape, times, memory));
}

TEST(Synthesis, MemoryByHand) {
  PipelineShape shape{.stages = 1, .chunks = 2, .micros = 2};
  auto f = Action::forward, b = Action::backward_input, w = Action::backward_weight;
  // Activations of a chunk after each: 1, 2, 3, 2.25, 3.25 (the peak), ...
  std::vector<Actions> lists{{{f, 0, 0},
                              {f, 1, 0},
                              {f, 0, 1},
                              {b, 1, 0},
                              {f, 1, 1},
                              {b, 0, 0},
                              {w, 1, 0},
                              {w, 0, 0},
                              {b, 1, 1},
                              {b, 0, 1},
                              {w, 1, 1},
                              {w, 0, 1}}};
  EXPECT_DOUBLE_EQ(peak_memory(lists, shape, 0.25)[0], 3.25 / 2);
  EXPECT_DOUBLE_EQ(peak_memory(lists_of(gpipe, shape), shape, 1)[0], 2);
}

TEST(Synthesis, RefusesWhatNoScheduleCanHave) {
  auto refused = [](const PipelineShape& shape, Durations each, Budget memory, const char* what) {
    test::expect_config_error([&] { synthesize(shape, equal_stages(shape, each), memory, 1); },
                              {what});
  };
  PipelineShape shape{.stages = 2, .micros = 4};
  refused({.stages = 2, .chunks = 2, .micros = 4}, {}, budget(2, 1),
          "expected one chunk, or two in a V");
  refused({.stages = 2, .micros = 0}, {}, budget(2, 1), "0 micro-batches");
  refused(shape, {0, 1, 1}, budget(2, 1), "times 0,1,1,0,0; expected forward");
  refused(shape, {1, 1, 1, -1}, budget(2, 1), "times 1,1,1,-1");
  refused(shape, {}, budget(2, 0.4), "memory for 0.8 activations; expected for 1 to 1e9");
  refused(shape, {}, budget(3, 1), "memory of 3 stages; expected of 2");
  refused(shape, {}, budget(2, 1, 1e4), "hold 10000; expected 0 to 1000");
  test::expect_config_error([&] { synthesize(shape, StageTimes(3), budget(2, 1), 1); },
                            {"times of 3 stages and chunks; expected 2"});
}

}  // namespace triax::parallel::synthesis_test
