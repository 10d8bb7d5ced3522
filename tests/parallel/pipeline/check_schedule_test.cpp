#include "triax/parallel/pipeline/check_schedule.h"

#include <gtest/gtest.h>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"
#include "triax/core/check.h"
#include "triax/core/error.h"

namespace triax::parallel::check_schedule_test {

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

}  // namespace triax::parallel::check_schedule_test
