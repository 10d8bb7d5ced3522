// Runs of minigpt that are refused, on all ranks with one message that names what would do.
#include <functional>

#include "examples/text/sample.h"
#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/expect_error.h"
#include "triax/parallel/train/options/options.h"

namespace triax::minigpt::validate_test {

using test::error_of;

/// The message with which a run that `change` was done to ends before its first step.
std::string message(int ranks, const std::function<void(Job&)>& change) {
  Job c;
  c.step().mesh.dp = 0;  // what is left
  change(c);
  Job with_text = c;
  with_text.model.context = std::max<int64_t>(1, c.model.context);
  parallel::Task task = task_of(with_text);
  task.settings = settings(c);
  return error_of(
      [&] {
        parallel::run_worlds(
            ranks, [&](parallel::World& world) { parallel::Trainer(task, c.train, world); });
      },
      Exit::config);
}

TEST(Validate, RefusesHeadsThatDoNotDivideTheWidth) {
  EXPECT_EQ(message(2, [](auto& c) { c.model.heads = 3; }),
            "heads=3 does not divide width=128\n  Each head holds width/heads columns. Valid heads "
            "for this width: 1, 2, 4, 8, 16, 32, 64, 128.");
  std::string many = message(2, [](auto& c) { c.model.width = 5040, c.model.heads = 11; });
  EXPECT_NE(many.find("nearest: 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18."), many.npos) << many;
}

TEST(Validate, RefusesAModelThatNothingCanHold) {
  EXPECT_EQ(message(1, [](auto& c) { c.model.width = 2'000'000'000, c.model.heads = 2; }),
            "layers=4 of width=2000000000 are 1.9e+20 parameters\n"
            "  Expected fewer than 1e15 (12 x layers x width squared).");
}

TEST(Validate, RefusesValuesOutOfRange) {
  EXPECT_EQ(message(2, [](auto& c) { c.train.steps = -1; }),
            "steps: `-1`; expected a whole number, 0 or more");
  const std::function<void(Job&)> changes[] = {[](auto& c) { c.step().micro_batch = 0; },
                                               [](auto& c) { c.step().global_batch = -24; },
                                               [](auto& c) { c.model.context = 0; },
                                               [](auto& c) { c.model.layers = 0; },
                                               [](auto& c) { c.model.heads = 0; },
                                               [](auto& c) { c.model.width = 0; },
                                               [](auto& c) { c.model.dropout = 1; },
                                               [](auto& c) { c.model.dropout = -0.1; },
                                               [](auto& c) { c.step().adamw.beta1 = 1; },
                                               [](auto& c) { c.step().adamw.beta2 = -0.5; },
                                               [](auto& c) { c.step().zero = parallel::Zero(4); },
                                               [](auto& c) { c.text.val_fraction = 1.1; },
                                               [](auto& c) { c.train.lr.peak = -1; },
                                               [](auto& c) { c.step().clip = -1; },
                                               [](auto& c) { c.train.keep = 0; },
                                               [](auto& c) { c.train.launch.comm = "rdma"; }};
  for (const auto& change : changes) {
    std::string text = message(2, change);
    EXPECT_NE(text.find("; expected "), std::string::npos) << text;
  }
}

std::string refused_mesh(const Layout& layout, int ranks) {
  return message(ranks, [&](auto& c) { c.set(layout); });
}

TEST(Validate, RefusesAMeshThatDoesNotFitTheModel) {
  EXPECT_EQ(refused_mesh({.tp = 3}, 3),
            "tp=3 does not divide heads=4\n  Each rank holds whole attention heads. Valid tp for "
            "these heads: 1, 2, 4.");
  EXPECT_EQ(refused_mesh({.pp = 8}, 8),
            "pp=8 x chunks=1 = 8 virtual stages of a model of 6 layers\n  Every virtual stage "
            "needs a layer. Valid pp x chunks: 1 to 6.");
  EXPECT_EQ(refused_mesh({.pp = 4, .schedule = "interleaved"}, 4).substr(0, 34),
            "pp=4 x chunks=2 = 8 virtual stages");
  EXPECT_EQ(refused_mesh({.pp = 2, .chunks = 2}, 2),
            "schedule 1f1b: 2 chunks a stage; expected 1, or --schedule interleaved");
  std::string placed = refused_mesh({.pp = 2, .placement = "3,2"}, 2);
  EXPECT_NE(placed.find("--placement 2,2"), placed.npos) << placed;
  EXPECT_EQ(refused_mesh({.dp = 2, .pp = 2, .tp = 3}, 8),
            "mesh: dp 2 * pp 2 * tp 3 = 12 does not equal the 8 ranks started\n"
            "  With 8 ranks try: --dp 2 --pp 2 --tp 2, or --dp 4 --pp 2 --tp 1, or --dp 2 --pp 4 "
            "--tp 1\n"
            "  For this mesh: mpirun -np 12 with the same command, or --comm threads --ranks 12");
}

// A stage may be the embedding or the head alone.
TEST(Validate, AllowsAsManyStagesAsLayers) {
  Job c;
  c.model = {.layers = 2, .heads = 2, .width = 8, .context = 8};
  c.set({.pp = 4});
  c.step().micro_batch = 1, c.step().global_batch = 4;
  parallel::Task task = task_of(c);
  parallel::run_worlds(4, [&](parallel::World& world) {
    parallel::Trainer trainer(task, c.train, world);
    EXPECT_EQ(trainer.update().replica().placement(), (std::vector<int64_t>{1, 1, 1, 1}));
    EXPECT_GT(trainer.step().loss, 0);
  });
}

TEST(Validate, RefusesRowsThatRanksDoNotDivide) {
  EXPECT_EQ(message(2,
                    [](auto& c) {
                      c.model.context = 3;
                      c.set({.tp = 2, .sequence_parallel = true});
                      c.step().micro_batch = 1;
                    }),
            "layer embedding: sequence parallel: 2 ranks do not divide 3 token rows; expected a "
            "multiple\n  Take sequences of a length that tp divides, or leave "
            "--sequence-parallel out.");
}

TEST(Validate, SampleNeedsACheckpoint) {
  auto refused = [](const text::SampleOptions& o) {
    return error_of(
        [&] {
          parallel::run_worlds(1,
                               [&](parallel::World& world) { text::sample(o, model_of, world); });
        },
        Exit::config);
  };
  EXPECT_EQ(refused({}), "checkpoint is not given\n  Add --checkpoint RUN/step-N, or RUN.");
  EXPECT_EQ(refused({.checkpoint = "runs/a/step-10", .prompt = ""}),
            "prompt is empty\n  A model continues a text of one character at least.");
  EXPECT_EQ(refused({.checkpoint = "runs/a/step-10", .pp = 2}).substr(0, 33),
            "mesh: dp 1 * pp 2 * tp 1 = 2 does");
  EXPECT_EQ(refused({.checkpoint = "runs/a/step-10", .prompt = "-", .interactive = true}),
            "prompt=- with interactive\n  Both read standard input. Expected one of them.");
  EXPECT_EQ(refused({.checkpoint = "runs/a/step-10", .samples = 2, .interactive = true}),
            "samples=2 with interactive\n  Each line has one answer. Leave --samples out.");
}

}  // namespace triax::minigpt::validate_test
