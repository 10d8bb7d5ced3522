#include "parallel/pipeline/check_schedule.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/error.h"
#include "parallel/pipeline/launch_order.h"
#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

constexpr PipelineShape shape{.stages = 2, .chunks = 1, .micros = 3};

/// `schedule` with the list of one stage changed.
Schedule changed(const Schedule& schedule, int where, const std::function<void(Actions&)>& change) {
  return [=](const PipelineShape& s, int stage) {
    Actions list = schedule(s, stage);
    if (stage == where) change(list);
    return list;
  };
}

void expect_fault(const Schedule& schedule, const std::string& what,
                  nn::Purpose purpose = nn::Purpose::training) {
  test::expect_config_error([&] { check_schedule(schedule, shape, purpose); }, {what});
}

// On stage 0: F0 F1 B0 F2 B1 B2; on stage 1: F0 B0 F1 B1 F2 B2.

TEST(CheckSchedule, MissingAction) {
  expect_fault(changed(one_f_one_b, 1, [](Actions& l) { l.pop_back(); }),
               "schedule: stage 1, end of the list at position 5: no backward of micro-batch 2, "
               "chunk 0; expected it once");
  expect_fault(changed(one_f_one_b, 1, [](Actions& l) { l.resize(4); }),
               "schedule: stage 1, end of the list at position 4: no forward of micro-batch 2, "
               "chunk 0; expected it once");
  expect_fault(changed(zb_h1, 1, [](Actions& l) { l.pop_back(); }),
               "schedule: stage 1, end of the list at position 8: no backward_weight of "
               "micro-batch 2, chunk 0; expected it once");
}

TEST(CheckSchedule, ActionTwice) {
  expect_fault(changed(one_f_one_b, 0, [](Actions& l) { l.push_back(l[4]); }),
               "schedule: stage 0, position 6: backward of micro-batch 1, chunk 0 again; expected "
               "it once, at position 4");
  auto halves_too = [](Actions& l) { l.push_back({Action::backward_input, 0, 1}); };
  expect_fault(changed(one_f_one_b, 0, halves_too),
               "schedule: stage 0, position 6: backward_input of micro-batch 1, chunk 0 after the "
               "backward at position 4; expected one whole backward, or its halves");
  auto whole_too = [](Actions& l) { l.push_back({Action::backward, 0, 0}); };
  expect_fault(changed(zb_h1, 0, whole_too),
               "schedule: stage 0, position 9: backward of micro-batch 0, chunk 0 after the "
               "backward_input at position 2; expected one whole backward, or its halves");
}

TEST(CheckSchedule, WrongOrder) {
  expect_fault(changed(one_f_one_b, 1, [](Actions& l) { std::swap(l[2], l[3]); }),
               "schedule: stage 1, position 2: backward of micro-batch 1, chunk 0 before its "
               "forward; expected it after");
  expect_fault(changed(zb_h1, 0, [](Actions& l) { std::swap(l[2], l[3]); }),
               "schedule: stage 0, position 2: backward_weight of micro-batch 0, chunk 0 before "
               "its backward_input; expected it after");
}

TEST(CheckSchedule, WhatDoesNotExist) {
  auto what = "does not exist; expected micro-batches 0 to 2, chunks 0 to 0";
  for (Action a : {Action{Action::forward, 0, 3}, Action{Action::forward, 1, 0},
                   Action{Action::backward, 0, -1}, Action{Action::backward, -1, 0}})
    expect_fault(changed(one_f_one_b, 1, [=](Actions& l) { l[0] = a; }),
                 "schedule: stage 1, position 0: " + str(a) + " " + what);
}

TEST(CheckSchedule, OtherOrderOnOneSide) {
  expect_fault(changed(gpipe, 1, [](Actions& l) { std::swap(l[1], l[2]); }),
               "schedule: stage 1, position 1: forward of micro-batch 2, chunk 0 takes handover 1 "
               "from stage 0 for the activation of micro-batch 2 from virtual stage 0 to 1, but it "
               "is the activation of micro-batch 1 from virtual stage 0 to 1, sent at position 1; "
               "expected receives in the order of sends");
  auto both = [](const PipelineShape& s, int stage) {
    Actions list = gpipe(s, stage);
    std::swap(list[1], list[2]);
    return list;
  };
  EXPECT_NO_THROW(check_schedule(both, shape));
}

TEST(CheckSchedule, Deadlock) {
  auto first_alternates = changed(gpipe, 0, [](Actions& l) { l = one_f_one_b({1, 1, 3}, 0); });
  expect_fault(
      first_alternates,
      "schedule: deadlock: stage 0, position 1 (backward of micro-batch 0, chunk 0), "
      "waits for stage 1 to send the gradient of micro-batch 0 from virtual stage 1 to 0; "
      "stage 1, position 1 (forward of micro-batch 1, chunk 0), waits for stage 0 to send "
      "the activation of micro-batch 1 from virtual stage 0 to 1; expected that some stage "
      "can always go on");
}

TEST(CheckSchedule, BackwardInInference) {
  expect_fault(one_f_one_b,
               "schedule: stage 0, position 2: backward of micro-batch 0, chunk 0 in inference; "
               "expected forwards alone",
               nn::Purpose::inference);
  expect_fault(forward_only, "schedule: stage 0, end of the list at position 3: no backward of");
}

/// Whatever is left out, doubled or, on one side alone, exchanged for what is received after it.
TEST(CheckSchedule, EveryPlantedFault) {
  for (const std::string& name : schedule_names()) {
    Schedule right = schedule_named(name);
    PipelineShape s{3, right.chunks, 4, right.placement};
    for (int stage = 0; stage < s.stages; ++stage) {
      auto length = right(s, stage).size();
      for (size_t i = 0; i < length; ++i) {
        SCOPED_TRACE(testing::Message() << name << " stage " << stage << " position " << i);
        auto at = [&](Actions& l) { return l.begin() + ptrdiff_t(i); };
        auto left_out = changed(right, stage, [&](Actions& l) { l.erase(at(l)); });
        auto doubled = changed(right, stage, [&](Actions& l) { l.insert(at(l), l[i]); });
        EXPECT_THROW(check_schedule(left_out, s), Error);
        EXPECT_THROW(check_schedule(doubled, s), Error);
        for (size_t j = i + 1; j < length; ++j) {
          Actions list = right(s, stage);
          bool same_channel = list[i].kind == list[j].kind && list[i].chunk == list[j].chunk &&
                              list[i].kind != Action::backward_weight;
          if (!same_channel) continue;
          auto exchanged = changed(right, stage, [&](Actions& l) { std::swap(l[i], l[j]); });
          EXPECT_THROW(check_schedule(exchanged, s), Error);
        }
      }
    }
  }
}

/// Groups of as many micro-batches as stages, the last one smaller: a plausible way to write an
/// interleaved schedule, which deadlocks on some shapes.
Actions small_last_group(const PipelineShape& s, int stage) {
  Actions forwards, backwards, list;
  for (int first = 0; first < s.micros; first += s.stages)
    for (int c = 0; c < s.chunks; ++c)
      for (int m = first; m < std::min(first + s.stages, s.micros); ++m) {
        forwards.push_back({Action::forward, c, m});
        backwards.push_back({Action::backward, s.chunks - 1 - c, m});
      }
  int ahead =
      std::min(2 * (s.stages - stage - 1) + (s.chunks - 1) * s.stages, int(forwards.size()));
  for (int i = 0; i < int(forwards.size()) + ahead; ++i) {
    if (i < int(forwards.size())) list.push_back(forwards[size_t(i)]);
    if (i >= ahead) list.push_back(backwards[size_t(i - ahead)]);
  }
  return list;
}

/// 23 of these 120 shapes according to another simulator, written in Python.
TEST(CheckSchedule, SmallLastGroup) {
  int deadlocks = 0;
  for (int stages : {2, 3, 4, 5, 8})
    for (int micros = 1; micros <= 24; ++micros) try {
        check_schedule(small_last_group, {stages, 3, micros});
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("deadlock"), std::string::npos) << e.what();
        ++deadlocks;
      }
  EXPECT_EQ(deadlocks, 23);
}

TEST(CheckSchedule, StatesLiveActivations) {
  using Peak = std::vector<int>;
  auto peak = [](const Schedule& s, PipelineShape p) { return check_schedule(s, p); };
  EXPECT_EQ(peak(one_f_one_b, {.stages = 4, .micros = 8}), (Peak{4, 3, 2, 1}));
  EXPECT_EQ(peak(zb_h1, {.stages = 4, .micros = 8}), (Peak{4, 4, 4, 4}));
  EXPECT_EQ(peak(gpipe, {.stages = 2, .micros = 8}), (Peak{8, 8}));
  EXPECT_EQ(peak(interleaved, {.stages = 4, .chunks = 2, .micros = 8}), (Peak{11, 9, 7, 5}));
}

std::string hang(const Schedule& schedule, const PipelineShape& s) {
  return hang_over_nccl(lists_of(schedule, s), s);
}

/// As another simulator says, written in Python. Interleaved schedules round the ring hang where
/// the last group is not full and two full ones came before it.
TEST(LaunchOrder, WhatHangsOverNccl) {
  for (const std::string& name : schedule_names()) {
    Schedule schedule = schedule_named(name);
    bool rounds = name == "interleaved" || name == "zb-interleaved";
    for (int stages = 2; stages <= 8; ++stages)
      for (int micros = 1; micros <= 4 * stages + 1; ++micros)
        for (int chunks : rounds ? std::vector{2, 3} : std::vector{schedule.chunks}) {
          PipelineShape s{stages, chunks, micros, schedule.placement};
          bool expected = rounds && micros > 2 * stages && micros % stages != 0;
          EXPECT_NO_THROW(check_schedule(schedule, s));
          EXPECT_EQ(!hang(schedule, s).empty(), expected)
              << name << ", " << stages << " stages, " << micros << " micro-batches";
        }
  }
}

TEST(LaunchOrder, ForwardsDoNotHang) {
  for (Placement placement : {Placement::ring, Placement::v})
    for (int stages = 1; stages <= 5; ++stages)
      for (int micros = 1; micros <= 4 * stages + 1; ++micros)
        EXPECT_EQ(hang(forward_only, {stages, 2, micros, placement}), "");
}

/// A stage that sends twice before the other takes the first, and then waits for what comes only
/// behind its second send: with receives posted ahead of time it goes on.
TEST(LaunchOrder, SaysWhoWaitsForWhom) {
  EXPECT_EQ(hang(interleaved, {.stages = 2, .chunks = 2, .micros = 9}),
            "stage 0, position 25 (forward of micro-batch 6, chunk 1), waits for stage 1 to take "
            "the gradient of micro-batch 4 from virtual stage 2 to 1; "
            "stage 1, position 24 (backward of micro-batch 4, chunk 0), waits for stage 0 to take "
            "the activation of micro-batch 6 from virtual stage 1 to 2");
}

TEST(LaunchOrder, NamesTheNextNumberThatWorks) {
  auto refused = [](const Schedule& schedule, PipelineShape s, const std::string& cure) {
    test::expect_config_error(
        [&] { check_over_nccl(schedule, s); },
        {fmt::format("schedule: {} micro-batches on {} stages hang over NCCL", s.micros, s.stages),
         "stage 0, position ", cure, "1f1b"});
  };
  refused(interleaved, {2, 2, 5}, "Take 6 micro-batches (--global-batch divided by dp and");
  refused(interleaved, {2, 2, 9}, "Take 10 micro-batches");
  refused(interleaved, {4, 2, 9}, "Take 12 micro-batches");
  refused(interleaved, {4, 2, 13}, "Take 16 micro-batches");
  refused(zb_interleaved, {8, 3, 25}, "Take 32 micro-batches");
  EXPECT_NO_THROW(check_over_nccl(interleaved, {2, 2, 6}));

  // Lists that are made for one number, as those of a file are.
  PipelineShape s{2, 2, 5};
  Schedule fixed = [=](const PipelineShape& other, int stage) {
    if (other != s) fail(Exit::config, "for 5 micro-batches");
    return interleaved(other, stage);
  };
  refused(fixed, s, "Take another --schedule");
}

}  // namespace
}  // namespace triax::parallel
