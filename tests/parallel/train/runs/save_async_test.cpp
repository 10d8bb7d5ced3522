// Checkpoints that are written while training goes on (TrainOptions::save_async).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel::save_async_test {

using namespace test;

/// Counts the checkpoints of a run, as the callback is told.
std::function<void(Trainer&)> counts(size_t& saved) {
  return [&](Trainer& t) {
    t.on({.checkpoint = [&](Trainer&, const std::string& path) {
      EXPECT_TRUE(disk().is_directory(path)) << path;
      ++saved;
    }});
  };
}

/// All but the state of a manifest, which names the run.
std::string contents_of(const std::string& checkpoint) {
  Manifest m = read_manifest(checkpoint);
  m.state.clear();
  return to_text(m);
}

std::vector<std::string> checkpoints_in(const std::string& run) {
  auto names = disk().list(run);
  std::erase_if(names, [](auto& name) { return !name.starts_with("step-"); });
  return names;
}

void expect_same_checkpoints(const std::string& a, const std::string& b) {
  ASSERT_EQ(checkpoints_in(a), checkpoints_in(b));
  for (auto& step : checkpoints_in(a)) {
    std::string left = a + "/" + step, right = b + "/" + step;
    EXPECT_EQ(disk().list(left), disk().list(right));
    EXPECT_EQ(contents_of(left), contents_of(right));
    for (auto& file : disk().list(left)) {
      if (file == manifest_name) continue;
      EXPECT_TRUE(read_bytes(left + "/" + file) == read_bytes(right + "/" + file))
          << right << "/" << file;
    }
  }
}

struct Case {
  MeshShape mesh;
  Zero zero = Zero::off;
  DType dtype = f32;
  Offloaded offload = Offloaded::nothing;
};

TEST(SaveAsync, SavesTheSameBytesOnAnyMesh) {
  const Case cases[] = {{{}},
                        {{2, 1, 1}},
                        {{2, 1, 1}, Zero::optimizer},
                        {{2, 1, 1}, Zero::gradients, bf16},
                        {{2, 1, 1}, Zero::parameters, f16},
                        {{1, 2, 1}},
                        {{1, 1, 2}, Zero::off, bf16},
                        {{2, 2, 2}, Zero::parameters},
                        {{2, 1, 1}, Zero::parameters, bf16, Offloaded::parameters}};
  for (const Case& c : cases) {
    TemporaryDirectory dir;
    auto o = tiny_options(c.mesh);
    o.step.micro_batch = 4, o.step.zero = c.zero, o.step.dtype = c.dtype;
    o.step.offload = c.offload, o.step.average = c.offload == Offloaded::nothing ? 0.9 : 0;
    o.steps = 4, o.save_every = 1, o.keep = 9, o.val_every = 0;
    o.out = dir / "now";
    size_t now = 0, later = 0;
    train(task_of(), o, counts(now));
    o.out = dir / "later", o.save_async = true;
    train(task_of(), o, counts(later));
    EXPECT_EQ(later, 4u);
    EXPECT_EQ(later, now);
    SCOPED_TRACE(name_of_run(o));
    expect_same_checkpoints(dir / "now", dir / "later");
  }
}

// Learning too fast, the loss of held-out samples rises again.
TEST(SaveAsync, KeepsTheSameCheckpoints) {
  TemporaryDirectory dir;
  auto o = tiny_options({.dp = 2});
  o.steps = 8, o.val_every = 1, o.save_every = 2, o.keep = 1, o.keep_best = true;
  o.lr = {.peak = 0.3, .low = 0.3, .warmup = 0, .steps = 8};
  o.out = dir / "now";
  train(o);
  o.out = dir / "later", o.save_async = true;
  train(o);
  EXPECT_EQ(checkpoints_in(o.out).size(), 2u);
  expect_same_checkpoints(dir / "now", dir / "later");
}

TEST(SaveAsync, ASignalEndsWhatWasBegunAndSavesTheLastStep) {
  TemporaryDirectory dir;
  auto o = tiny_options({.dp = 2});
  o.out = dir / "run", o.steps = 100, o.save_every = 1, o.save_async = true, o.keep = 100;
  o.lr = {.decay = optim::Schedule::Decay::constant, .peak = 1e-2, .warmup = 2};
  size_t saved = 0;
  {
    StopSignal stop;
    Ran ran = train(task_of(), o, [&](Trainer& t) {
      counts(saved)(t);
      t.on({.step = [](Trainer& own, const StepRecord&) {
        if (own.done() == 5) std::raise(SIGTERM);
      }});
    });
    EXPECT_EQ(ran.code, Exit::stopped);
  }
  EXPECT_EQ(saved, 6u);
  EXPECT_EQ(checkpoints_in(o.out).size(), 6u);
  o.resume = "auto", o.steps = 8, o.save_every = 0;
  train(o);
  TrainOptions whole = tiny_options({.dp = 2});
  whole.out = dir / "whole", whole.steps = 8, whole.keep = 1;
  whole.lr = o.lr;
  train(whole);
  EXPECT_EQ(contents_of(o.out + "/step-8"), contents_of(whole.out + "/step-8"))
      << "not the run that never stopped";
}

// The steps before the one that diverged are kept, however far their checkpoint is.
TEST(SaveAsync, ADivergedRunEndsWithItsCheckpoint) {
  TemporaryDirectory dir;
  auto o = tiny_options({.dp = 2});
  o.out = dir / "run", o.steps = 20, o.save_every = 1, o.save_async = true, o.keep = 1;
  o.lr = {.decay = optim::Schedule::Decay::constant, .peak = 1e37, .warmup = 0};
  std::string error = error_of([&] { train(o); }, Exit::non_finite);
  int64_t step = 0;
  ASSERT_EQ(std::sscanf(error.c_str() + error.find("at step "), "at step %ld", &step), 1) << error;
  EXPECT_EQ(checkpoints_in(o.out), std::vector<std::string>{fmt::format("step-{}", step - 1)});
}

// All ranks are told of a sample that is not finite, whichever has read it.
TEST(SaveAsync, ARunWithBadDataEndsWithItsCheckpoint) {
  TemporaryDirectory dir;
  auto o = tiny_options({.dp = 2});
  o.out = dir / "run", o.steps = 40, o.save_every = 1, o.save_async = true, o.keep = 1;
  Task task = task_of();
  Tensor x = zeros({256, 16}, f32, cpu);
  fill_(x.narrow(0, 77, 1), double(NAN));
  task.samples = std::make_shared<nn::TensorSamples>(x, zeros({256}, i32, cpu));
  std::string error = error_of([&] { train(task, o); }, Exit::data);
  int64_t step = 0;
  ASSERT_EQ(std::sscanf(error.c_str(), "samples: step %ld", &step), 1) << error;
  ASSERT_GT(step, 1);
  EXPECT_EQ(checkpoints_in(o.out), std::vector<std::string>{fmt::format("step-{}", step - 1)});
}

// Only one rank knows of it, so what it has begun to save is given up.
TEST(SaveAsync, AnErrorOfOneRankLeavesTheCheckpointBefore) {
  TemporaryDirectory dir;
  auto o = tiny_options({.dp = 2});
  o.out = dir / "run", o.steps = 20, o.save_every = 1, o.save_async = true;
  expect_data_error(
      [&] {
        train(task_of(), o, [](Trainer& t) {
          t.on({.step = [](Trainer& own, const StepRecord&) {
            if (own.done() == 5) fail(Exit::data, "on purpose");
          }});
        });
      },
      {"on purpose"});
  auto left = checkpoints_in(o.out);
  std::erase_if(left, [](auto& name) { return name.find(".tmp-") == name.npos; });
  EXPECT_TRUE(left.empty()) << left[0];
  o.resume = "auto", o.steps = 6;
  size_t saved = 0;
  EXPECT_EQ(train(task_of(), o, counts(saved)).code, Exit::ok);
  EXPECT_GT(saved, 0u);
}

TEST(SaveAsync, SaveReturnsWhenTheCheckpointIsThere) {
  TemporaryDirectory dir;
  auto o = tiny_options();
  o.out = dir / "run", o.save_async = true;
  run_worlds(1, [&](World& world) {
    Trainer trainer(task_of(), o, world);
    trainer.step();
    trainer.save();
    EXPECT_EQ(checkpoints_in(o.out), std::vector<std::string>{"step-1"});
  });
}

}  // namespace triax::parallel::save_async_test
