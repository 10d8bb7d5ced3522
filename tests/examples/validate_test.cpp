#include <gtest/gtest.h>

#include <functional>

#include "examples/minigpt/config.h"
#include "tests/support/expect_error.h"

namespace triax::minigpt {
namespace {

using test::error_of;
using test::expect_error;

// The message for a configuration that `change` was done to, on two ranks.
std::string message(const std::function<void(TrainConfig&)>& change) {
  TrainConfig c;
  c.data = "some.txt";
  change(c);
  resolve(c, 2, "today");
  return error_of([&] { validate(c, 2); }, Exit::config);
}

TEST(Validate, ResolvesWhatFollows) {
  TrainConfig c;
  c.data = "texts/some.txt";
  resolve(c, 2, "20250101-120000");
  EXPECT_EQ(c.mesh.dp, 2);
  EXPECT_EQ(c.warmup, 100);
  EXPECT_EQ(c.global_batch, 2 * c.micro_batch);
  EXPECT_EQ(c.accumulation(), 1);
  EXPECT_EQ(c.out, "runs/20250101-120000-some");
  EXPECT_EQ(c.metrics, "runs/20250101-120000-some/metrics.jsonl");
  EXPECT_NO_THROW(validate(c, 2));

  TrainConfig given;
  given.data = "a";
  given.out = "b";
  given.metrics = "c";
  given.mesh.dp = 3;
  given.warmup = 0;
  given.mesh.chunks = 1;
  given.global_batch = 72;
  TrainConfig resolved = given;
  resolve(resolved, 3, "");
  EXPECT_EQ(to_toml(resolved), to_toml(given));
  EXPECT_EQ(resolved.accumulation(), 2);

  TrainConfig few{.steps = 20};
  resolve(few, 1, "");
  EXPECT_EQ(few.warmup, 10);
}

TEST(Validate, RefusesHeadsThatDoNotDivideTheWidth) {
  EXPECT_EQ(message([](auto& c) { c.model.heads = 3; }),
            "heads=3 does not divide width=128\n  Each head holds width/heads columns. Valid heads "
            "for this width: 1, 2, 4, 8, 16, 32, 64, 128.");
  std::string many = message([](auto& c) { c.model.width = 5040, c.model.heads = 11; });
  EXPECT_NE(many.find("nearest: 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18."), many.npos) << many;
}

TEST(Validate, RefusesAMeshThatIsNotTheRanks) {
  EXPECT_EQ(message([](auto& c) { c.mesh.dp = 3; }),
            "mesh: dp 3 * pp 1 * tp 1 = 3 does not equal the 2 ranks started\n"
            "  With 2 ranks try: --dp 2 --pp 1 --tp 1, or --dp 1 --pp 2 --tp 1, or --dp 1 --pp 1 "
            "--tp 2\n"
            "  For this mesh: mpirun -np 3 minigpt train ..., or --comm threads --ranks 3");
  EXPECT_NE(message([](auto& c) { c.ranks = 2; }).find("ranks=2 with comm=auto"),
            std::string::npos);
}

TEST(Validate, RefusesABatchThatIsNotWhole) {
  EXPECT_EQ(message([](auto& c) { c.global_batch = 50; }),
            "global-batch=50 is not a multiple of micro-batch 12 x dp 2 = 24\n  Every replica "
            "accumulates the same number of whole micro-batches. Nearest valid: 48, 72.");
  std::string less = message([](auto& c) { c.global_batch = 5; });
  EXPECT_NE(less.find("Nearest valid: 24."), less.npos) << less;
}

TEST(Validate, RefusesRatesThatDoNotFit) {
  EXPECT_EQ(message([](auto& c) { c.steps = 10, c.warmup = 100; }),
            "warmup=100 is more than steps=10\n"
            "  The learning rate would never reach --lr. Valid warmup: 0 to 10.");
  EXPECT_EQ(message([](auto& c) { c.lr = 1e-5; }),
            "min-lr=0.0001 is more than lr=1e-05\n"
            "  The learning rate falls from --lr to --min-lr. Valid min-lr: 0 to 1e-05.");
}

TEST(Validate, RefusesWhatIsNotBuilt) {
  EXPECT_EQ(message([](auto& c) { c.graph = true; }),
            "graph with device=cpu\n  Only GPUs have graphs. Leave --graph out, or change that.");
  EXPECT_EQ(message([](auto& c) { c.graph = true, c.device = "cuda", c.mesh.zero = 3; }),
            "graph with zero=3\n  ZeRO-3 gives weights back and gets others. Leave --graph out, or "
            "change that.");
  EXPECT_EQ(message([](auto& c) { c.device = "gpu"; }),
            "device `gpu`\n  Valid: cpu, cuda, and cuda:N for GPU N, from 0.");
  EXPECT_EQ(message([](auto& c) { c.comm = "nccl"; }),
            "comm=nccl with device=cpu\n"
            "  NCCL moves tensors of GPUs. Add --device cuda, or leave --comm out.");
  EXPECT_EQ(message([](auto& c) { c.precision = "bf16", c.loss_scale = 8; }),
            "loss-scale=8 with precision=bf16\n  Only fp16 has gradients that need it. Leave it "
            "out, or add --precision fp16.");
}

TEST(Validate, RefusesToShareOutWhatIsNotTheRanks) {
  auto split = [](auto& c) { c.recompute = "block-split"; };
  EXPECT_EQ(message(split),
            "recompute=block-split with tp=1\n  There are no ranks to share a block's input out "
            "to. Valid: off, selective, block.");
  std::string rows =
      message([&](auto& c) { split(c), c.mesh.tp = 2, c.mesh.sequence_parallel = true; });
  EXPECT_NE(rows.find("block-split with sequence-parallel\n  Each rank has only its rows"),
            rows.npos)
      << rows;
  EXPECT_EQ(error_of([] { recompute_of("all"); }, Exit::config),
            "recompute is `all`; expected off, selective, block, block-split");
}

TEST(Validate, RefusesValuesOutOfRange) {
  EXPECT_EQ(message([](auto& c) { c.steps = 0; }),
            "steps: `0`; expected a whole number, 1 or more");
  const std::function<void(TrainConfig&)> changes[] = {
      [](auto& c) { c.micro_batch = 0; },   [](auto& c) { c.global_batch = -24; },
      [](auto& c) { c.model.context = 0; }, [](auto& c) { c.model.layers = 0; },
      [](auto& c) { c.model.heads = 0; },   [](auto& c) { c.model.width = 0; },
      [](auto& c) { c.model.dropout = 1; }, [](auto& c) { c.model.dropout = -0.1; },
      [](auto& c) { c.beta1 = 1; },         [](auto& c) { c.beta2 = -0.5; },
      [](auto& c) { c.val_fraction = 1; },  [](auto& c) { c.lr = -1; },
      [](auto& c) { c.clip = -1; },         [](auto& c) { c.keep = 0; },
      [](auto& c) { c.warmup = -1; },       [](auto& c) { c.comm = "rdma"; }};
  for (const auto& change : changes) {
    std::string text = message(change);
    EXPECT_NE(text.find("; expected "), std::string::npos) << text;
  }
}

std::string refused_mesh(const MeshConfig& mesh, int64_t ranks) {
  TrainConfig c{.data = "some.txt"};
  c.mesh = mesh;
  resolve(c, ranks, "today");
  return error_of([&] { validate(c, ranks); }, Exit::config);
}

TEST(Validate, RefusesAMeshThatDoesNotFitTheModel) {
  EXPECT_EQ(refused_mesh({.tp = 3}, 3),
            "tp=3 does not divide heads=4\n  Each rank holds whole attention heads. Valid tp for "
            "these heads: 1, 2, 4.");
  EXPECT_EQ(refused_mesh({.pp = 8}, 8),
            "pp=8 x chunks=1 pieces of a model of 4 blocks\n  Each piece should have a block to "
            "do. Valid pp x chunks: 1 to 4.");
  EXPECT_EQ(refused_mesh({.pp = 4, .schedule = "interleaved"}, 4).substr(0, 21),
            "pp=4 x chunks=2 piece");
  EXPECT_EQ(refused_mesh({.pp = 2, .chunks = 2}, 2),
            "schedule 1f1b: 2 chunks a stage; expected 1, or --schedule interleaved");
  std::string placed = refused_mesh({.pp = 2, .placement = "3,2"}, 2);
  EXPECT_NE(placed.find("--placement 2,2"), placed.npos) << placed;
  EXPECT_NE(refused_mesh({.zero = 4}, 1).find("zero: `4`; expected a whole number in [0, 3]"),
            std::string::npos);
  std::string schedule = refused_mesh({.schedule = "2f2b"}, 1);
  EXPECT_NE(schedule.find("expected one of: gpipe, 1f1b"), schedule.npos) << schedule;
  EXPECT_EQ(refused_mesh({.dp = 2, .pp = 2, .tp = 3}, 8),
            "mesh: dp 2 * pp 2 * tp 3 = 12 does not equal the 8 ranks started\n"
            "  With 8 ranks try: --dp 2 --pp 2 --tp 2, or --dp 4 --pp 2 --tp 1, or --dp 2 --pp 4 "
            "--tp 1\n"
            "  For this mesh: mpirun -np 12 minigpt train ..., or --comm threads --ranks 12");
}

TEST(Validate, RefusesRowsThatRanksDoNotDivide) {
  TrainConfig c{.data = "some.txt"};
  c.model.context = 3;
  c.micro_batch = 1;
  c.mesh = {.tp = 2, .sequence_parallel = true};
  resolve(c, 2, "today");
  EXPECT_EQ(error_of([&] { validate(c, 2); }, Exit::config),
            "sequence-parallel: tp=2 does not divide micro-batch 1 x context 3 = 3 token rows\n"
            "  Each rank holds equally many rows. Valid tp for them: 1.");
}

TEST(Validate, SampleNeedsACheckpoint) {
  SampleConfig c;
  c.mesh.dp = 1;
  EXPECT_EQ(error_of([&] { validate(c, 1); }, Exit::config),
            "checkpoint is not given\n  Add --checkpoint RUN/step-N.");
  c.checkpoint = "runs/a/step-10";
  EXPECT_NO_THROW(validate(c, 1));
  c.temperature = -1;
  expect_error([&] { validate(c, 1); }, {"temperature", "-1", "expected"}, Exit::config);
}

}  // namespace
}  // namespace triax::minigpt
