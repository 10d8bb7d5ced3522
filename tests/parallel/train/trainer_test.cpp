// The trainer over a model of a test's own: callbacks, validation, checkpoints, resume.
#include "triax/parallel/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/optim/sgd.h"
#include "triax/parallel/comm/launch/stop_signal.h"

namespace triax::parallel::trainer_test {

using namespace test;

TEST(Trainer, CallsBackOnTheFirstRankOrOnAll) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory.path() + "/run", o.val_every = 2, o.save_every = 2, o.steps = 4;
  std::mutex lock;
  std::map<std::string, int> all, first;
  train(task_of(), o, [&](Trainer& t) {
    for (auto [counts, where] : {std::pair{&all, On::all}, {&first, On::first}}) {
      auto count = [&lock, counts = counts](const char* what) {
        std::lock_guard guard(lock);
        ++(*counts)[what];
      };
      t.on({.start = [=](Trainer&) { count("start"); },
            .end = [=](Trainer&) { count("end"); },
            .step = [=](Trainer&, const StepRecord&) { count("step"); },
            .validation = [=](Trainer&, double) { count("validation"); },
            .checkpoint = [=](Trainer&, const std::string&) { count("checkpoint"); }},
           where);
    }
  });
  std::map<std::string, int> once{
      {"start", 1}, {"end", 1}, {"step", 4}, {"validation", 2}, {"checkpoint", 2}};
  EXPECT_EQ(first, once);
  for (auto& [what, count] : once) EXPECT_EQ(all[what], 2 * count) << what;
}

TEST(Trainer, ErrorsReachTheCallback) {
  std::string seen;
  auto o = tiny_options();
  expect_data_error(
      [&] {
        train(task_of(), o, [&](Trainer& t) {
          t.on({.step = [](Trainer&, const StepRecord&) { fail(Exit::data, "on purpose"); },
                .error = [&](Trainer&, const std::exception& e) { seen = e.what(); }});
        });
      },
      {"on purpose"});
  EXPECT_EQ(seen, "callback after step 1: on purpose");
}

TEST(Trainer, ValidationIsAMeanOverAllHeldOutTargets) {
  auto at = [](MeshShape mesh) {
    double loss = 0;
    auto o = tiny_options(mesh);
    o.step.micro_batch = 4;  // 50 samples: blanks fill up the last
    Task task = task_of();
    run_worlds(mesh.size(), [&](World& world) {
      Trainer trainer(task, o, world);
      auto value = trainer.validate();
      if (world.rank() == 0) loss = *value;
    });
    return loss;
  };
  double one = at({});
  EXPECT_GT(one, 0.5);
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1}})
    EXPECT_NEAR(at(mesh), one, 1e-6);
}

TEST(Trainer, ResumesOnAnotherMeshWithAnOptimizerOfTheProgramsOwn) {
  TemporaryDirectory directory;
  auto options = [&](MeshShape mesh, int64_t steps, const std::string& out) {
    auto o = tiny_options(mesh);
    o.step.micro_batch = 4, o.steps = steps, o.out = directory.path() + "/" + out;
    o.lr = {.decay = optim::Schedule::Decay::constant, .peak = 0.05, .warmup = 0, .steps = 0};
    o.step.optimizer = [](const std::vector<optim::Slot>& slots) {
      return std::make_unique<optim::Sgd>(slots, optim::SgdOptions{.momentum = 0.9});
    };
    return o;
  };
  auto second = options({.pp = 2, .tp = 2}, 6, "halves");
  second.step.zero = Zero::optimizer;
  expect_resumed(task_of(), options({}, 6, "straight"), options({.dp = 2}, 3, "halves"), second);
}

TEST(Trainer, ResumingWithAnotherOptimizerIsNamed) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  auto with_sgd = [&](double momentum) {
    auto own = o;
    own.step.optimizer = [momentum](const std::vector<optim::Slot>& slots) {
      return std::make_unique<optim::Sgd>(slots, optim::SgdOptions{.momentum = momentum});
    };
    return own;
  };
  auto refuses = [&](const TrainOptions& options, const std::string& tensor) {
    expect_data_error([&] { train(options); },
                      {tensor, "frozen parameters differ", "Resume with the same"});
  };
  o.out = directory / "adamw";
  train(o);
  o.resume = "auto";
  refuses(with_sgd(0.9), "@");
  refuses(with_sgd(0), "@m [");
  o.resume = "", o.out = directory / "sgd";
  train(task_of(), with_sgd(0));
  o.resume = "auto";
  refuses(o, "it has no tensor ");
}

/// noise(), which asks for a stop as the first validation begins: when its weights are summed once
/// more than before the first step.
struct Stops : nn::Samples {
  std::shared_ptr<nn::Samples> all = noise(50, 4);
  mutable int sums = 0;
  int64_t count() const override { return all->count(); }
  nn::Batch batch(std::span<const int64_t> indices) const override { return all->batch(indices); }
  double weight(int64_t index) const override {
    if (index == 0 && ++sums == 2) std::raise(SIGTERM);
    return 1;
  }
  std::string identity() const override { return all->identity(); }
};

TEST(Trainer, AValidationThatWasStoppedIsMadeUp) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory.path() + "/run", o.keep_best = true;
  auto last_record = [&] {
    std::string all = disk().read(o.out + "/metrics.jsonl", 1 << 20);
    return all.substr(all.find_last_of('{'));
  };
  Task task = task_of();
  {
    StopSignal stop;
    task.held_out = std::make_shared<Stops>();
    EXPECT_EQ(train(task, o).code, Exit::stopped);
  }
  std::string before = last_record();
  EXPECT_FALSE(says(before, "val_loss"));
  task.held_out = noise(50, 4);
  o.resume = "auto";
  EXPECT_EQ(train(task, o).code, Exit::ok);
  EXPECT_TRUE(last_record().starts_with(before.substr(0, before.size() - 2) + ",\"val_loss\":"))
      << last_record();
  EXPECT_TRUE(says(disk().read(o.out + "/step-3/manifest.json", 1 << 20), "val_loss"));
  std::string once = last_record();
  train(task, o);  // nothing is missing any more
  EXPECT_EQ(last_record(), once);
}

// A file outside of the run directory may be another run's.
TEST(Trainer, AResumedRunGoesOnWithItsOwnMetricsOnly) {
  TemporaryDirectory directory;
  auto options = [&](int64_t steps, const std::string& out, const std::string& metrics) {
    auto o = tiny_options();
    o.steps = steps, o.out = directory / out, o.metrics = directory / metrics;
    o.resume = "auto";
    return o;
  };
  train(options(5, "a", "a.jsonl"));
  std::string of_a = read_bytes(directory / "a.jsonl");
  train(options(3, "b", "b.jsonl"));
  expect_config_error([&] { train(options(4, "b", "a.jsonl")); },
                      {"a.jsonl exists, and the resumed run wrote elsewhere"});
  EXPECT_EQ(read_bytes(directory / "a.jsonl"), of_a);
  EXPECT_EQ(train(options(4, "b", "b.jsonl")).losses.size(), 1u);
  std::string of_b = read_bytes(directory / "b.jsonl");
  EXPECT_EQ(std::count(of_b.begin(), of_b.end(), '\n'), 4);

  // Killed before its first checkpoint, with metrics in another file than before: begun again
  // alike.
  train(options(5, "b", "c.jsonl"));
  std::filesystem::remove_all(directory / "b/step-5");
  train(options(5, "b", "c.jsonl"));
  std::string of_c = read_bytes(directory / "c.jsonl");
  EXPECT_EQ(std::count(of_c.begin(), of_c.end(), '\n'), 1);

  // Another directory goes on from a's checkpoint, but a's metrics are a's.
  auto fork = options(6, "fork", "a.jsonl");
  fork.resume = directory / "a/step-5";
  expect_config_error([&] { train(fork); }, {"a.jsonl exists"});
  EXPECT_EQ(read_bytes(directory / "a.jsonl"), of_a);
}

TEST(Trainer, ASignalSavesFirstAndSkipsValidation) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory.path() + "/run", o.steps = 100;
  int validations = 0;
  StopSignal stop;
  Ran ran = train(task_of(), o, [&](Trainer& t) {
    t.on({.step =
              [](Trainer& own, const StepRecord&) {
                if (own.done() == 2) std::raise(SIGTERM);
              },
          .validation = [&](Trainer&, double) { ++validations; }});
  });
  EXPECT_EQ(ran.code, Exit::stopped);
  EXPECT_EQ(validations, 0);
  EXPECT_TRUE(disk().is_directory(o.out + "/step-3"));
}

TEST(Trainer, OtherDataOrSettingsAreRefusedOrSaidOnResume) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory.path() + "/run";
  train(o);
  o.resume = "auto", o.steps = 5;
  Task other = task_of();
  other.held_out = noise(50, 5);
  expect_config_error([&] { train(other, o); }, {"other held-out samples", noise(50, 4)->identity(),
                                                 other.held_out->identity()});
  TrainOptions seed = o;
  seed.step.seed = 2;
  expect_config_error([&] { train(seed); }, {"with seed 1", "asks for 2"});
  o.step.clip = 0.5;
  Ran ran = train(o);
  EXPECT_EQ(ran.losses.size(), 2u);
  EXPECT_TRUE(says(ran.said, "changed since the checkpoint: clip was 1.0, now 0.5"));
}

// Learning too fast, the loss of held-out samples rises again.
TEST(Trainer, KeepsTheCheckpointOfTheLowestValidationLoss) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory / "run", o.keep = 1, o.keep_best = true;
  o.steps = 8, o.val_every = 1, o.lr = {.peak = 0.3, .low = 0.3, .warmup = 0, .steps = 8};
  std::vector<double> losses;
  auto note = [&](Trainer& t) {
    t.on({.validation = [&](Trainer&, double loss) { losses.push_back(loss); }});
  };
  auto steps = [&] {
    std::set<std::string> names;
    for (auto& name : disk().list(o.out))
      if (name.starts_with("step-")) names.insert(name);
    return names;
  };
  auto best = [&] { return std::ranges::min_element(losses) - losses.begin() + 1; };
  train(task_of(), o, note);
  ASSERT_LT(best(), 8);
  EXPECT_EQ(steps(), (std::set<std::string>{fmt::format("step-{}", best()), "step-8"}));
  o.resume = "auto", o.steps = 10;
  std::string said = train(task_of(), o, note).said;
  EXPECT_EQ(steps(), (std::set<std::string>{fmt::format("step-{}", best()), "step-10"}));
  EXPECT_TRUE(says(
      said, fmt::format("lowest validation loss {:.4f}: checkpoint", losses[size_t(best() - 1)])));
  Task blind = task_of();
  blind.held_out = {};
  expect_config_error([&] { train(blind, o); }, {"keep-best without held-out samples"});
}

/// Data whose identity is only a name.
struct Nameless : nn::TensorSamples {
  Nameless(int64_t samples, double value)
      : TensorSamples(full({samples, 16}, value, f32, cpu), zeros({samples}, i32, cpu)) {}
  std::string identity() const override { return "mine"; }
};

TEST(Trainer, OtherDataOfTheSameNameAreRefusedOnResume) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / "run";
  Task task = task_of();
  task.samples = std::make_shared<Nameless>(40, 1);
  train(task, o);
  o.resume = "auto", o.steps = 5;
  task.samples = std::make_shared<Nameless>(41, 1);
  expect_config_error([&] { train(task, o); }, {"other training samples: number (40)"});
  task.samples = std::make_shared<Nameless>(40, 2);
  expect_config_error([&] { train(task, o); }, {"other training samples: first ("});
}

// Weights that are not the number of targets may be meant; forgotten ones train, at another rate.
TEST(Trainer, SaysThatWeightsAreNotTheNumberOfTargets) {
  struct Plain : nn::TensorSamples {
    using TensorSamples::TensorSamples;
    double weight(int64_t) const override { return 1; }
  };
  Tensor some = from_host(std::vector<int32_t>{1, -1, 2, 3}, {1, 4}, cpu),
         none = full({1, 1}, -1, i32, cpu);
  auto said = [](const nn::Samples& s) { return weight_warning(s); };
  Tensor x = zeros({1, 16}, f32, cpu);
  EXPECT_TRUE(
      says(said(Plain(x, some)), "sample 0 has 3 targets that are not -1, but its weight is 1"));
  EXPECT_TRUE(says(said(Plain(x, none)), "sample 0 has 0 targets"));
  EXPECT_EQ(said(nn::TensorSamples(x, some)), "");
}

TEST(Trainer, InputsThatAreNotFiniteAreNamed) {
  for (auto [dtype, value] : {std::pair{f32, double(NAN)}, {f16, 1e6}}) {
    auto o = tiny_options({.dp = 2});
    o.step.dtype = dtype, o.steps = 60;
    Task task = task_of();
    Tensor x = zeros({16, 16}, f32, cpu);
    fill_(x.narrow(0, 5, 1), value);
    task.samples = std::make_shared<nn::TensorSamples>(x, zeros({16}, i32, cpu));
    expect_data_error([&] { train(task, o); },
                      {"samples: step", "on rank", "the input of micro-batch 0 (samples",
                       "expected finite numbers"});
  }
}

/// Counts how often it is asked who it is.
struct Asked : nn::TensorSamples {
  using TensorSamples::TensorSamples;
  std::string identity() const override {
    ++times;
    return TensorSamples::identity();
  }
  mutable std::atomic<int> times = 0;
};

// A flag may be named as the data are; they are compared all the same. All of them is read once.
TEST(Trainer, TheDataAreComparedUnderANameOfTheirOwnAndReadOnce) {
  TemporaryDirectory directory;
  int64_t samples = 1;
  auto task = [&](float value) {
    Task made = task_of();
    auto asked = std::make_shared<Asked>(full({40, 16}, value, f32, cpu), zeros({40}, i32, cpu));
    made.samples = asked;
    made.settings = SettingGroup("Own")
                        .add("samples", "N", "as the data are called", &samples)
                        .add("parameters", "N", "as the model's are", &samples);
    return std::pair(made, asked);
  };
  auto o = tiny_options();
  o.out = directory.path() + "/run", o.save_every = 1;
  auto [first, asked] = task(1);
  train(first, o);
  EXPECT_EQ(asked->times, 1);
  o.resume = "auto", o.steps = 5;
  auto [other, again] = task(2);
  expect_config_error([&, task = other] { train(task, o); },
                      {"other training samples", again->identity()});
}

}  // namespace triax::parallel::trainer_test
