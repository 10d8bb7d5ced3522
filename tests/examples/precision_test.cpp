// fp16 and bf16 on any mesh; overflows are seen by all ranks, and change nothing.
// correctness 12, 13, 18.
#include "examples/minigpt/precision.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/minigpt/feed.h"
#include "examples/minigpt/replica.h"
#include "examples/minigpt/train.h"
#include "nn/state.h"
#include "optim/adamw.h"
#include "parallel/comm/launch/world.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"

namespace triax::minigpt {
namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

TrainConfig small(const std::string& precision) {
  TrainConfig c{.data = "text"};
  c.model = {.layers = 4, .heads = 2, .width = 16, .context = 8, .dropout = 0.1, .vocab = 13};
  c.micro_batch = 2;
  c.global_batch = 8;
  c.steps = 12;
  c.warmup = 0;
  c.val_fraction = 0;
  c.precision = precision;
  return c;
}

/// Loss and norm of every step of a real run; `look` sees what it left in its directory.
std::vector<nlohmann::json> run(TrainConfig c, const MeshConfig& mesh,
                                const std::function<void(const std::string& out)>& look = {}) {
  test::TemporaryDirectory directory;
  c.data = directory / "text";
  c.out = directory / "run";
  c.mesh = mesh;
  test::write_bytes(c.data, some_text());
  testing::internal::CaptureStdout();
  struct Release {
    ~Release() { testing::internal::GetCapturedStdout(); }
  } release;
  parallel::run_worlds(int(mesh.dp * mesh.pp * mesh.tp),
                       [&](parallel::World& world) { train(c, world.comm(), world.host()); });
  std::vector<nlohmann::json> records;
  std::istringstream lines(test::read_bytes(c.out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) records.push_back(nlohmann::json::parse(line));
  if (look) look(c.out);
  return records;
}

TEST(Precision, LowPrecisionTrainsAlikeOnAnyMesh) {
  auto exact = run(small("fp32"), {.dp = 1});
  for (const char* precision : {"bf16", "fp16"}) {
    // Eight bits of mantissa, or eleven: rounding of single activations, averaged over tokens.
    double bound = precision == std::string("bf16") ? 2e-3 : 3e-4;
    for (const MeshConfig& mesh :
         {MeshConfig{.dp = 1},
          {.dp = 4, .zero = 1},
          {.dp = 2, .pp = 2, .tp = 2, .zero = 2},
          {.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .schedule = "zb-h1"}}) {
      auto records = run(small(precision), mesh);
      ASSERT_EQ(records.size(), exact.size());
      for (size_t i = 0; i < exact.size(); ++i) {
        double loss = exact[i]["loss"], norm = exact[i]["grad_norm"];
        EXPECT_NEAR(double(records[i]["loss"]), loss, bound * loss) << precision << i;
        EXPECT_NEAR(double(records[i]["grad_norm"]), norm, 20 * bound * norm) << precision << i;
        EXPECT_EQ(records[i]["skipped"], false);
      }
    }
  }
}

/// Checkpoints of a rank after the first and the last of steps that are all skipped: the same
/// weights and masters, none of them ever updated, and moments that are still zero.
void expect_untrained(const std::function<std::string(int64_t step)>& file, int64_t steps) {
  auto first = nn::load_tensors(file(1) + ".safetensors");
  auto last = nn::load_tensors(file(steps) + ".safetensors");
  ASSERT_EQ(first.size(), last.size());
  int64_t moments = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto& [name, value] = first[i];
    test::expect_bitwise(last[i].value, value, name);
    bool moment = name.ends_with("@m") || name.ends_with("@v");
    moments += moment;
    for (double v : test::values(value))
      EXPECT_TRUE(moment ? v == 0 : std::abs(v) <= 1) << name << ": " << v;
  }
  EXPECT_GT(moments, 0);
}

// A scale at which every step overflows changes nothing, however often; then it is given up.
TEST(Precision, SkippedStepsChangeNothing) {
  TrainConfig c = small("fp16");
  c.loss_scale = 1e12;
  c.save_every = 1, c.keep = c.steps;
  for (const MeshConfig& mesh : {MeshConfig{.dp = 1}, {.dp = 2, .pp = 2, .tp = 2, .zero = 3}}) {
    auto records = run(c, mesh, [&](const std::string& out) {
      for (int64_t rank = 0; rank < mesh.dp * mesh.pp * mesh.tp; ++rank)
        expect_untrained(
            [&](int64_t step) { return fmt::format("{}/step-{}/rank{}", out, step, rank); },
            c.steps);
    });
    ASSERT_EQ(records.size(), size_t(c.steps));
    for (auto& r : records) {
      EXPECT_EQ(r["skipped"], true);
      EXPECT_TRUE(r["grad_norm"].is_null());
      EXPECT_EQ(r["lr"], records[0]["lr"]) << "the learning rate counts updates";
    }
  }
  c.steps = 60, c.save_every = 0;
  test::expect_error([&] { run(c, {.dp = 2}); }, {"50 steps in a row", "loss scale 1000000000000,"},
                     Exit::non_finite);
}

// correctness 11: what is logged is the norm of the unscaled gradient, before it is clipped.
TEST(Precision, NormIsLoggedBeforeClipping) {
  for (const char* precision : {"fp32", "fp16"}) {
    TrainConfig c = small(precision);
    c.steps = 2, c.clip = 0;
    double whole = run(c, {.dp = 2})[0]["grad_norm"];
    EXPECT_NEAR(whole, double(run(small("fp32"), {.dp = 1})[0]["grad_norm"]), 0.01 * whole);
    c.clip = whole / 100;
    EXPECT_EQ(run(c, {.dp = 2})[0]["grad_norm"], whole);
  }
}

TEST(Precision, FieldsOfMetricsAreDocumented) {
  TrainConfig c = small("fp16");
  c.loss_scale = 1e12, c.val_fraction = 0.1, c.steps = 2;
  std::string page = test::read_bytes(TRIAX_SOURCE_DIR "/docs/runs.md");
  auto last = run(c, {.dp = 1}).back();
  for (const char* sometimes : {"overflow", "val_loss"})
    EXPECT_TRUE(last.contains(sometimes)) << sometimes;
  for (auto& [name, value] : last.items())
    EXPECT_NE(page.find("`" + name + "`"), page.npos) << name;
}

// An inf on any one rank, also where its element does not count, is seen by all.
TEST(Precision, EveryRankVotes) {
  constexpr int ranks = 8;
  TrainConfig c = small("fp32");
  Tokenizer tokenizer = Tokenizer::from_text(some_text(), "text");
  TextData text(some_text(), tokenizer, {.context = c.model.context, .name = "text"});
  for (int64_t zero : {0, 1, 2, 3}) {
    c.mesh = {.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = zero, .chunks = 1};
    parallel::run_ranks(ranks, [&](parallel::Communicator& world) {
      parallel::Mesh mesh(world, {.dp = 2, .pp = 2, .tp = 2});
      Replica replica(c, mesh);
      Feed feed(c, text, mesh.dp());
      replica.step([&](int64_t micro) { return feed.at(1, micro); }, 1);
      auto& data = replica.data();
      EXPECT_EQ(data.norm().non_finite, 0);
      auto slots = data.slots();
      for (int rank = 0; rank < ranks; ++rank)
        for (int64_t at : {0, -1}) {
          // Slots may be fewer on another stage; the first and the last piece exist on each.
          size_t slot = at == 0 ? 0 : slots.size() - 1;
          auto pieces = data.slot_pieces(slot);
          bool mine = rank == world.rank() && !pieces.empty();
          Tensor element, before;
          if (mine) {
            element = slots[slot].grad.narrow(0, pieces.back().begin, 1);
            before = clone(element);
            fill_(element, std::numeric_limits<double>::infinity());
          }
          double planted = mine, seen = data.norm().non_finite;
          Tensor sum = full({1}, planted, f64, cpu);
          world.all_reduce(sum).wait();
          EXPECT_EQ(seen > 0, sum.item() > 0) << "zero " << zero << ", inf on rank " << rank;
          if (mine) copy_(element, before);
        }
    });
  }
}

TEST(Precision, WeightsAreTheCastOfTheirMasters) {
  Tokenizer tokenizer = Tokenizer::from_text(some_text(), "text");
  for (const char* precision : {"bf16", "fp16"})
    for (int64_t zero : {0, 1, 2, 3}) {
      TrainConfig c = small(precision);
      TextData text(some_text(), tokenizer, {.context = c.model.context, .name = "text"});
      c.mesh = {.dp = 2, .tp = 2, .zero = zero, .chunks = 1};
      parallel::run_ranks(4, [&](parallel::Communicator& world) {
        parallel::Mesh mesh(world, {.dp = 2, .tp = 2});
        Replica replica(c, mesh);
        Feed feed(c, text, mesh.dp());
        optim::AdamW adam(replica.data().slots(), {});
        for (int64_t step = 1; step <= 3; ++step) {
          replica.step([&](int64_t micro) { return feed.at(step, micro); }, 1e-2);
          adam.step(1e-3);
          replica.data().publish();
          auto slots = replica.data().slots();
          for (auto& s : adam.state())
            if (s.kind == std::string("master"))
              test::expect_bitwise(slots[s.slot].weight, s.value.to(dtype_of(precision)));
        }
      });
    }
}

}  // namespace
}  // namespace triax::minigpt
