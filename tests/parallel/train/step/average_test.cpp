// A moving average of the weights: alike on every mesh, used by validation, saved and resumed.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/check.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::average_test {

using namespace test;

TrainOptions options(MeshShape mesh, Zero zero = Zero::off, double average = 0.8) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 4, o.steps = 4, o.val_every = 0;
  o.lr = {.peak = 2e-2, .low = 2e-2, .warmup = 0};
  o.step.zero = zero, o.step.average = average;
  return o;
}

constexpr MeshShape meshes[] = {{2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}};
constexpr Zero zeros_of_all[] = {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters};

TEST(Average, IsTheSameOnEveryMesh) {
  for (DType dtype : {f32, bf16, f16}) {
    auto base = options({});
    base.step.dtype = dtype;
    Trace reference = trace(task_of(), reference_of(base));
    ASSERT_TRUE(reference.steps[0].state.contains("head.table/average"));
    for (MeshShape mesh : meshes)
      for (Zero zero : zeros_of_all) {
        auto o = options(mesh, zero);
        o.step.dtype = dtype;
        EXPECT_EQ(difference(task_of(), o, reference), "") << name_of_run(o);
      }
  }
}

/// What a run tells of its validations.
struct Told {
  std::vector<double> train, validation, scores;
};

/// Trains to the end of `o`; validates by hand after each step in `at`.
Told run(const TrainOptions& o, std::vector<int64_t> at = {}) {
  Told told;
  Task task = task_of();
  task.scores = {{"top1", top_k(1)}};
  run_worlds(o.step.mesh.size(), [&](World& world) {
    Trainer trainer(task, o, world);
    while (trainer.done() < o.steps) {
      double loss = trainer.step().loss;
      if (trainer.first()) told.train.push_back(loss);
      if (std::ranges::count(at, trainer.done()) == 0) continue;
      double value = *trainer.validate();
      if (!trainer.first()) continue;
      told.validation.push_back(value);
      told.scores.push_back(trainer.scores().at("top1"));
    }
  });
  return told;
}

// The loss of a model whose weights are the averages, and of no other.
TEST(Average, IsWhatValidationUses) {
  double with = 0, plain = 0, of_averages = 0;
  run_worlds(1, [&](World& world) {
    Trainer a(task_of(), options({}), world), b(task_of(), options({}, Zero::off, 0), world);
    for (int i = 0; i < 4; ++i) a.step(), b.step();
    std::map<std::string, Tensor> averages;
    for (auto& piece : a.update().pieces(Holder::any))
      if (piece.kind == "average") averages[piece.name] = piece.value;
    with = *a.validate();
    const auto& counter = *memory::counter();
    memory::counter()->reset_peaks();
    plain = *b.validate();
    EXPECT_EQ(counter.peak(memory::buffers), counter.live(memory::buffers)) << "of activations";
    b.restore([&](auto& pieces) {
      for (auto& piece : pieces)
        if (piece.kind.empty())
          copy_(piece.value, averages.at(piece.name).view(piece.value.shape()));
    });
    of_averages = *b.validate();
  });
  EXPECT_EQ(with, of_averages);
  EXPECT_GT(std::abs(with - plain), 1e-4);
}

// Losses of all steps are those of a run that never validated, to the bit; validations are those of
// one rank.
TEST(Average, ValidationLeavesTheWeightsAsTheyWere) {
  Told one = run(options({}), {1, 3});
  for (MeshShape mesh : meshes)
    for (Zero zero : zeros_of_all)
      for (DType dtype : {f32, bf16}) {
        auto o = options(mesh, zero);
        o.step.dtype = dtype;
        Told told = run(o, {1, 3});
        EXPECT_EQ(told.train, run(o).train) << name_of_run(o);
        for (size_t i = 0; i < 2; ++i)
          EXPECT_NEAR(told.validation[i], one.validation[i], dtype == f32 ? 1e-5 : 2e-2)
              << name_of_run(o);
        EXPECT_TRUE(dtype != f32 || told.scores == one.scores) << name_of_run(o);
      }
}

TEST(Average, AValidationThatFailsPutsTheWeightsBack) {
  Task task = task_of();
  task.scores = {
      {"bad", [fails = std::make_shared<int>(0)](const Tensor&, const Tensor&) -> double {
         if (++*fails > 1) fail(Exit::data, "on purpose");
         return 0;
       }}};
  run_worlds(1, [&](World& world) {
    Trainer trainer(task, options({}), world);
    trainer.step();
    auto weights = [&] {
      std::vector<std::vector<double>> all;
      for (auto& slot : trainer.update().replica().data().slots())
        all.push_back(values(slot.weight));
      return all;
    };
    trainer.step();
    auto before = weights();
    EXPECT_THROW((void)trainer.validate(), Error);
    EXPECT_EQ(weights(), before);
  });
}

/// Trains up to `steps` in a run directory; the last validation.
double leg(TrainOptions o, int64_t steps, const std::string& out) {
  double last = 0;
  o.steps = steps, o.out = out, o.resume = "auto";
  Ran ran = train(task_of(), o, [&](Trainer& t) {
    t.on({.validation = [&](Trainer&, double loss) { last = loss; }});
  });
  EXPECT_EQ(ran.code, Exit::ok);
  return last;
}

TEST(Average, IsResumedOnAnotherMesh) {
  TemporaryDirectory directory;
  double straight = leg(options({}), 6, directory / "straight");
  for (Zero zero : {Zero::optimizer, Zero::parameters}) {
    std::string out = directory / fmt::format("zero{}", int(zero));
    leg(options({.dp = 2, .tp = 2}, zero), 3, out);
    EXPECT_NEAR(leg(options({.pp = 2}), 6, out), straight, 1e-5);
  }
  double same = leg(options({}), 3, directory / "same");
  EXPECT_NE(same, straight);
  EXPECT_EQ(leg(options({}), 6, directory / "same"), straight);
}

TEST(Average, IsLoadedForInference) {
  TemporaryDirectory directory;
  for (DType dtype : {f32, bf16}) {
    auto o = options({.dp = 2}, Zero::optimizer);
    std::string out = directory / name(dtype);
    o.step.dtype = dtype;
    leg(o, 2, out);
    run_worlds(2, [&](World& world) {
      Mesh mesh(world.comm(), {.tp = 2});
      auto checkpoint = Checkpoint::open(out + "/step-2", world.host());
      auto with = inference_options(mesh.shape(), dtype);
      Task task = task_of();
      Replica model(mesh, task.build, with,
                    probe(task.build, batch_like(task, 1), probe_options(with)));
      model.load(checkpoint, Weights::average);
      for (auto& piece : model.pieces(Holder::any)) {
        Tensor average = checkpoint.read(piece.name, piece.part, "average");
        EXPECT_EQ(values(piece.value), values(average.to(dtype))) << piece.name;
        Tensor trained = checkpoint.read(piece.name, piece.part);
        bool same = values(trained) == values(average);
        EXPECT_FALSE(same && dtype == f32) << piece.name;
      }
    });
  }
}

TEST(Average, ACheckpointWithAnotherIsRefused) {
  TemporaryDirectory directory;
  leg(options({}), 2, directory / "run");
  for (double average : {0., 0.5}) {
    expect_config_error([&] { leg(options({}, Zero::off, average), 3, directory / "run"); },
                        {"was trained with average 0.8"});
  }
}

}  // namespace triax::parallel::average_test
