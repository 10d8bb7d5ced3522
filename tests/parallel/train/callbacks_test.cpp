// What callbacks may do, and steps that the caller takes before run().
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/io/files.h"

namespace triax::parallel::callbacks_test {

using namespace test;

void calls_in_a_step(const TrainOptions& o, On where, const std::function<void(Trainer&)>& f) {
  train(task_of(), o,
        [&](Trainer& t) { t.on({.step = [&](Trainer& own, auto&) { f(own); }}, where); });
}

TEST(Callbacks, OfTheFirstRankCannotSaveOrValidate) {
  TemporaryDirectory directory;
  for (MeshShape mesh : {MeshShape{}, {2, 1, 1}, {1, 2, 1}}) {
    auto o = tiny_options(mesh);
    o.out = directory / "run";
    expect_config_error([&] { calls_in_a_step(o, On::first, [](Trainer& t) { t.save(); }); },
                        {"callback after step 1: trainer: save() in a callback `step` of the first",
                         "trainer.on({..}, On::all)"});
    expect_config_error([&] { calls_in_a_step(o, On::first, [](Trainer& t) { t.validate(); }); },
                        {"validate() in a callback `step` of the first rank"});
  }
}

TEST(Callbacks, OnAllRanksMaySaveAndValidate) {
  TemporaryDirectory directory;
  auto o = tiny_options({.pp = 2});
  o.out = directory / "run", o.steps = 2;
  int validated = 0;
  calls_in_a_step(o, On::all, [&](Trainer& t) {
    t.save();
    if (t.validate() && t.first()) ++validated;
  });
  EXPECT_EQ(validated, 2);
  EXPECT_TRUE(disk().is_directory(o.out + "/step-1"));
}

TEST(Callbacks, CannotStepOrRun) {
  auto o = tiny_options();
  expect_config_error([&] { calls_in_a_step(o, On::all, [](Trainer& t) { t.step(); }); },
                      {"step() in a callback `step`; expected it outside of callbacks"});
  expect_config_error([&] { calls_in_a_step(o, On::all, [](Trainer& t) { t.run(); }); },
                      {"run() in a callback `step`"});
}

TEST(Callbacks, ThatFailLeaveTheTrainerUsable) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory / "run";
  run_worlds(2, [&](World& world) {
    Trainer trainer(task_of(), o, world);
    trainer.on({.step = [](Trainer&, auto&) { fail(Exit::data, "enough"); }}, On::all);
    // What this throws does not hide the first error.
    trainer.on({.error = [](Trainer& t, auto&) { t.save(); }}, On::all);
    expect_data_error([&] { trainer.run(); }, {"enough"});
    trainer.save();
  });
  EXPECT_TRUE(disk().is_directory(o.out + "/step-1"));
}

TEST(Callbacks, DoNotCallThemselves) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / "run";
  auto with = [&](const Callbacks& c) {
    train(task_of(), o, [&](Trainer& t) { t.on(c, On::all); });
  };
  expect_config_error(
      [&] { with({.checkpoint = [](Trainer& t, auto&) { t.save(); }}); },
      {"save() in a callback `checkpoint`; expected it in start, step, validation, end"});
  o.out = directory / "another";
  expect_config_error([&] { with({.validation = [](Trainer& t, double) { t.validate(); }}); },
                      {"validate() in a callback `validation`"});
}

TEST(Callbacks, StepsBeforeRunAreValidatedAndSaved) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / "run";
  int validations = 0;
  Ran ran = train(task_of(), o, [&](Trainer& t) {
    t.on({.validation = [&](Trainer&, double) { ++validations; }});
    for (int64_t i = 0; i < o.steps; ++i) t.step();
  });
  EXPECT_TRUE(disk().is_directory(o.out + "/step-3"));
  EXPECT_EQ(validations, 1);
  EXPECT_FALSE(says(ran.said, "resumed"));
  EXPECT_TRUE(says(ran.said, "finished after step 3"));
}

}  // namespace triax::parallel::callbacks_test
