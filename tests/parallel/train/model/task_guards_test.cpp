// What a task may not lack, and what its samples, texts and names must be.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "triax/core/io/files.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::task_guards_test {

using namespace test;

TEST(Guards, TasksThatLackSomething) {
  struct Empty : nn::Samples {
    int64_t count() const override { return 0; }
    nn::Batch batch(std::span<const int64_t>) const override { return {}; }
    std::string identity() const override { return "empty"; }
  };
  auto with = [](auto change) {
    Task task = task_of();
    change(task);
    return task;
  };
  auto o = tiny_options();
  auto none = with([](Task& t) { t.samples = nullptr; });
  EXPECT_TRUE(refused(outcome(none, o), "task: no samples", "expected data to train on"));
  auto no_build = with([](Task& t) { t.build = nullptr; });
  EXPECT_TRUE(refused(outcome(no_build, o), "task: no build", "makes the model"));
  auto null = with([](Task& t) { t.build = [](auto&) { return nullptr; }; });
  EXPECT_TRUE(refused(outcome(null, o), "build: it returned no model", "Sequence"));
  auto empty = with([](Task& t) { t.samples = std::make_shared<Empty>(); });
  EXPECT_EQ(outcome(empty, o),
            "65: samples: count() of the training ones is 0; expected 1 or more");
  auto empty_end = with([](Task& t) { t.held_out = std::make_shared<Empty>(); });
  EXPECT_EQ(outcome(empty_end, o),
            "65: samples: count() of the held-out ones is 0; expected 1 or more");
  auto parity_of = [&](const Task& task) { parity(task, o); };
  for (auto& task : {none, no_build, null})
    expect_config_error([&] { parity_of(task); }, {"expected"});
  expect_data_error([&] { parity_of(empty); }, {"samples: count()"});
  o.steps = 0;
  expect_config_error([&] { parity_of(task_of()); }, {"parity: steps=0; expected 1 to 10000"});
}

TEST(Guards, SamplesThatAreNotWhatTheyPromise) {
  struct First : nn::TensorSamples {  // one sample, however many are asked for
    using TensorSamples::TensorSamples;
    nn::Batch batch(std::span<const int64_t> all) const override {
      return TensorSamples::batch(all.first(1));
    }
  };
  Task task = task_of();
  task.samples = std::make_shared<First>(zeros({4, 16}, f32, cpu), zeros({4}, i32, cpu));
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "samples: batch of the probe, indices 0",
                      "expected dim 0 of each to count them, on the CPU", 65));
  task = task_of();
  Tensor nan = full({4, 16}, double(NAN), f32, cpu);
  task.held_out = std::make_shared<nn::TensorSamples>(nan, zeros({4}, i32, cpu));
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / "run";
  o.resume = "auto";
  for (const char* run : {"first", "resumed, which has nothing else to do"}) {
    SCOPED_TRACE(run);
    expect_error([&] { run_worlds(1, [&](World& w) { Trainer(task, o, w).run(); }); },
                 {"validation: loss nan after step 3", "smaller --lr",
                  "look for inf and NaN in the held-out samples"},
                 Exit::non_finite);
    EXPECT_TRUE(disk().is_directory(o.out + "/step-3")) << "what was trained is kept";
    std::string records = read_bytes(o.out + "/metrics.jsonl");
    EXPECT_FALSE(says(records, "val_loss"));
  }
}

TEST(Guards, TextsThatACheckpointCannotHold) {
  struct Named : nn::TensorSamples {
    explicit Named(std::string name)
        : TensorSamples(zeros({4, 16}, f32, cpu), zeros({4}, i32, cpu)), name_(std::move(name)) {}
    std::string identity() const override { return name_; }
    std::string name_;
  };
  for (const char* name : {"two\nlines", "\xff\xfe"}) {
    Task task = task_of();
    task.held_out = std::make_shared<Named>(name);
    EXPECT_TRUE(refused(outcome(task, tiny_options()), "samples: identity: it is `",
                        "expected one line of UTF-8"));
  }
  Task task = task_of();
  task.attachments = {{"picture", "\x89PNG"}};
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "task: attachment `picture` is no text",
                      "expected UTF-8"));
}

TEST(Guards, NamesOfTheTrainersOwn) {
  Task task = task_of();
  for (const char* unit : {"", "loss", "seconds", "val_loss"}) {
    task.unit = unit;
    EXPECT_TRUE(refused(outcome(task, tiny_options()), fmt::format("task: unit `{}`", unit),
                        "no key of metrics.jsonl"));
  }
  task.unit = "frames of \"film\"";
  EXPECT_EQ(outcome(task, tiny_options()), "");
  for (const char* name : {"settings", "config", "updates", "consumed_samples", "a/b", "", "a b"}) {
    task.attachments = {{name, "{}"}};
    EXPECT_TRUE(refused(outcome(task, tiny_options()), fmt::format("task: attachment `{}`", name),
                        "expected a name of letters"));
  }
  task.attachments = {{"tokenizer-2", "{}"}};
  EXPECT_EQ(outcome(task, tiny_options()), "");
  double lr = 0;
  task.settings = SettingGroup("Own").add("lr", "X", "of the program's own", &lr);
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "flag --lr", "choose another name"));
}

}  // namespace triax::parallel::task_guards_test
