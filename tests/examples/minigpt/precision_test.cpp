// fp16 and bf16 on any mesh; overflows are seen by all ranks, and change nothing.
// correctness 12, 13, 18.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"
#include "triax/nn/state.h"

namespace triax::minigpt::precision_test {

Job small(DType dtype) {
  Job c;
  c.model = {.layers = 4, .heads = 2, .width = 16, .context = 8, .dropout = 0.1, .vocab = 13};
  c.text.val_fraction = 0;
  c.step().micro_batch = 2;
  c.step().global_batch = 8;
  c.step().dtype = dtype;
  c.train.steps = 12;
  c.train.lr.warmup = 0;
  return c;
}

/// Loss and norm of every step of a real run; `look` sees what it left in its directory.
std::vector<nlohmann::json> run(Job c, const Layout& layout,
                                const std::function<void(const std::string& out)>& look = {}) {
  test::TemporaryDirectory directory;
  c.text.data = directory / "text";
  c.train.out = directory / "run";
  c.set(layout);
  test::write_bytes(c.text.data, some_text());
  train(c, layout.ranks());
  std::vector<nlohmann::json> records;
  std::istringstream lines(test::read_bytes(c.train.out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) records.push_back(nlohmann::json::parse(line));
  if (look) look(c.train.out);
  return records;
}

TEST(Precision, LowPrecisionTrainsAlikeOnAnyMesh) {
  auto exact = run(small(f32), {.dp = 1});
  for (DType dtype : {bf16, f16}) {
    // Eight bits of mantissa, or eleven: rounding of single activations, averaged over tokens.
    double bound = dtype == bf16 ? 2e-3 : 3e-4;
    for (const Layout& layout :
         {Layout{.dp = 1},
          {.dp = 4, .zero = 1},
          {.dp = 2, .pp = 2, .tp = 2, .zero = 2},
          {.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .schedule = "zb-h1"}}) {
      auto records = run(small(dtype), layout);
      ASSERT_EQ(records.size(), exact.size());
      for (size_t i = 0; i < exact.size(); ++i) {
        double loss = exact[i]["loss"], norm = exact[i]["grad_norm"];
        EXPECT_NEAR(double(records[i]["loss"]), loss, bound * loss) << name(dtype) << i;
        EXPECT_NEAR(double(records[i]["grad_norm"]), norm, 20 * bound * norm) << name(dtype) << i;
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
  Job c = small(f16);
  c.step().loss_scale = 1e12;
  c.train.save_every = 1, c.train.keep = c.train.steps;
  for (const Layout& layout : {Layout{.dp = 1}, {.dp = 2, .pp = 2, .tp = 2, .zero = 3}}) {
    auto records = run(c, layout, [&](const std::string& out) {
      for (int rank = 0; rank < layout.ranks(); ++rank)
        expect_untrained(
            [&](int64_t step) { return fmt::format("{}/step-{}/rank{}", out, step, rank); },
            c.train.steps);
    });
    ASSERT_EQ(records.size(), size_t(c.train.steps));
    for (auto& r : records) {
      EXPECT_EQ(r["skipped"], true);
      EXPECT_TRUE(r["grad_norm"].is_null());
      EXPECT_EQ(r["lr"], records[0]["lr"]) << "the learning rate counts updates";
    }
  }
  c.train.steps = 60, c.train.save_every = 0;
  test::expect_error([&] { run(c, {.dp = 2}); }, {"50 steps in a row", "loss scale 1000000000000,"},
                     Exit::non_finite);
}

// correctness 11: what is logged is the norm of the unscaled gradient, before it is clipped.
TEST(Precision, NormIsLoggedBeforeClipping) {
  for (DType dtype : {f32, f16}) {
    Job c = small(dtype);
    c.train.steps = 2, c.step().clip = 0;
    double whole = run(c, {.dp = 2})[0]["grad_norm"];
    EXPECT_NEAR(whole, double(run(small(f32), {.dp = 1})[0]["grad_norm"]), 0.01 * whole);
    c.step().clip = whole / 100;
    EXPECT_EQ(run(c, {.dp = 2})[0]["grad_norm"], whole);
  }
}

TEST(Precision, FieldsOfMetricsAreDocumented) {
  Job c = small(f16);
  c.step().loss_scale = 1e12, c.text.val_fraction = 0.1, c.train.steps = 2;
  std::string page = test::read_bytes(TRIAX_SOURCE_DIR "/docs/runs.md");
  auto last = run(c, {.dp = 1}).back();
  for (const char* sometimes : {"overflow", "val_loss"})
    EXPECT_TRUE(last.contains(sometimes)) << sometimes;
  for (auto& [name, value] : last.items())
    EXPECT_NE(page.find("`" + name + "`"), page.npos) << name;
}

TEST(Precision, WeightsAreTheCastOfTheirMasters) {
  for (DType dtype : {bf16, f16})
    for (int zero : {0, 1, 2, 3}) {
      Job c = small(dtype);
      c.set({.dp = 2, .tp = 2, .zero = zero});
      parallel::Task task = task_of(c);
      on_mesh(c.step().mesh, [&](parallel::Mesh& mesh) {
        parallel::Step step(mesh, task.build, c.step(), facts_of(task, c.step()));
        auto feed = feed_of(task, c.step(), mesh);
        for (int64_t number = 1; number <= 3; ++number) {
          step.take({.number = number,
                     .batches = [&](int64_t micro) { return feed.at(number, micro); },
                     .weight = feed.weight(number),
                     .lr = 1e-3});
          EXPECT_FALSE(step.results(parallel::Step::Await::all).back().skipped);
          std::map<std::string, Tensor> weights;
          int64_t masters = 0;
          auto pieces = step.pieces(parallel::Holder::any);
          for (auto& p : pieces)
            if (p.kind.empty()) weights[p.name] = p.value;
          for (auto& p : pieces)
            if (p.kind == "master")
              test::expect_bitwise(weights.at(p.name), p.value.to(dtype), p.name), ++masters;
          EXPECT_GT(masters, 0);
          EXPECT_EQ(masters, std::ssize(weights));
        }
      });
    }
}

}  // namespace triax::minigpt::precision_test
