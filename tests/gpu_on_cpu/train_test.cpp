// minigpt's training step on GPUs, on any mesh, against one rank on the CPU: loss and gradient norm
// of every step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gpus.h"
#include "examples/minigpt/stepper.h"
#include "parallel/comm/launch/world.h"
#include "parallel/pipeline/schedule.h"
#include "tests/gpu_on_cpu/blas.h"
#include "tests/gpu_on_cpu/runtime.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

using parallel::GpuTransport;
using parallel::WorldOptions;

constexpr int64_t steps = 4;
constexpr Device one_gpu{Device::Kind::cuda, 0};
constexpr Device own_gpu{Device::Kind::cuda, WorldOptions::own_gpu};

std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

TrainConfig config(const MeshConfig& mesh) {
  TrainConfig c{.data = "text"};
  c.model = {.layers = 2, .heads = 2, .width = 8, .context = 8, .dropout = 0.1, .vocab = 16};
  c.mesh = mesh;
  c.mesh.dp = std::max<int64_t>(1, mesh.dp);
  c.mesh.chunks = c.mesh.schedule.ends_with("interleaved") ? 2 : 1;
  c.micro_batch = 1;
  c.global_batch = 4;
  c.steps = steps;
  c.warmup = 2;
  c.clip = 0.5;
  return c;
}

/// What the first rank recorded.
std::vector<StepRecord> train(const TrainConfig& c, Device device,
                              GpuTransport transport = GpuTransport::host) {
  TextData text(some_text(), Tokenizer::from_text(some_text(), "text"),
                {.context = c.model.context, .name = "text"});
  std::vector<StepRecord> records;
  const MeshConfig& m = c.mesh;
  auto rank = [&](parallel::World& world) {
    parallel::Mesh mesh(world.comm(), {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Stepper stepper(c, text, mesh);
    for (int64_t step = 1; step <= c.steps; ++step) {
      stepper.take(step);
      auto upto = step == c.steps ? Stepper::Upto::all : Stepper::Upto::lag;
      for (auto& r : stepper.records(upto))
        if (world.rank() == 0) records.push_back(r);
    }
  };
  parallel::run_worlds(int(m.dp * m.pp * m.tp), rank,
                       {.device = device, .gpu_transport = transport});
  return records;
}

void expect_equal(const std::vector<StepRecord>& got, const std::vector<StepRecord>& expected,
                  double within) {
  ASSERT_EQ(got.size(), size_t(steps));
  ASSERT_EQ(expected.size(), size_t(steps));
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", i + 1));
    EXPECT_EQ(got[i].step, expected[i].step);
    EXPECT_EQ(got[i].lr, expected[i].lr);
    EXPECT_EQ(got[i].skipped, expected[i].skipped);
    EXPECT_NEAR(got[i].loss, expected[i].loss, within * expected[i].loss);
    EXPECT_NEAR(got[i].grad_norm, expected[i].grad_norm, 10 * within * expected[i].grad_norm);
  }
}

const std::vector<StepRecord>& on_one_cpu() {
  static const auto records = train(config({}), cpu);
  return records;
}

TEST(TrainOnGpu, OneRank) { expect_equal(train(config({}), one_gpu), on_one_cpu(), 1e-6); }

TEST(TrainOnGpu, RanksThatShareIt) {
  for (int64_t zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("zero {}", zero));
    expect_equal(train(config({.dp = 2, .zero = zero}), one_gpu), on_one_cpu(), 1e-6);
  }
  expect_equal(train(config({.pp = 2, .tp = 2, .sequence_parallel = true}), one_gpu), on_one_cpu(),
               1e-6);
}

TEST(TrainOnGpu, RanksWithGpusOfTheirOwn) {
  for (const MeshConfig& mesh :
       {MeshConfig{.dp = 2}, MeshConfig{.dp = 2, .zero = 1}, MeshConfig{.dp = 2, .zero = 3},
        MeshConfig{.tp = 2, .sequence_parallel = true}, MeshConfig{.pp = 2},
        MeshConfig{.dp = 2, .tp = 2, .zero = 2}}) {
    SCOPED_TRACE(fmt::format("dp {} pp {} tp {} zero {}", mesh.dp, mesh.pp, mesh.tp, mesh.zero));
    expect_equal(train(config(mesh), own_gpu, GpuTransport::nccl), on_one_cpu(), 1e-6);
  }
}

TEST(TrainOnGpu, InOtherPrecisions) {
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    TrainConfig c = config({});
    c.precision = precision;
    auto expected = train(c, cpu);
    expect_equal(train(c, one_gpu), expected, 1e-3);
    c.mesh.dp = 2;
    expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, 1e-3);
  }
}

/// Any mesh with any schedule, on a shared GPU and with GPUs over NCCL.
void expect_equal_on_gpus(const TrainConfig& c, const std::vector<StepRecord>& expected,
                          double within = 1e-6) {
  const MeshConfig& m = c.mesh;
  SCOPED_TRACE(fmt::format("dp {} pp {} tp {} zero {} {}", m.dp, m.pp, m.tp, m.zero, m.schedule));
  expect_equal(train(c, one_gpu), expected, within);
  expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, within);
}

TEST(TrainOnGpu, EverySchedule) {
  TrainConfig deep = config({});
  deep.model.layers = 4;
  auto expected = train(deep, cpu);
  for (const std::string& schedule : parallel::schedule_names()) {
    deep.mesh = config({.pp = 2, .schedule = schedule}).mesh;
    expect_equal_on_gpus(deep, expected);
  }
  deep.mesh = config({.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"}).mesh;
  expect_equal_on_gpus(deep, expected);
  deep.mesh = config({.pp = 2, .tp = 2, .sequence_parallel = true, .schedule = "interleaved"}).mesh;
  expect_equal_on_gpus(deep, expected);
}

TEST(TrainOnGpu, Recomputation) {
  for (const char* recompute : {"selective", "block", "block-split"}) {
    SCOPED_TRACE(recompute);
    for (const MeshConfig& mesh : {MeshConfig{.dp = 1}, MeshConfig{.dp = 2, .zero = 3},
                                   MeshConfig{.pp = 2, .tp = 2, .sequence_parallel = true}}) {
      if (mesh.tp == 1 && recompute == std::string("block-split")) continue;
      TrainConfig c = config(mesh);
      c.recompute = recompute;
      expect_equal_on_gpus(c, on_one_cpu());
    }
  }
}

TEST(TrainOnGpu, OffloadedState) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    TrainConfig c = config({});
    c.precision = precision;
    auto expected = train(c, cpu);
    bool narrow = c.precision != "fp32";
    c.offload = "optimizer";
    for (const MeshConfig& mesh : {MeshConfig{.dp = 1}, MeshConfig{.dp = 2, .zero = 1},
                                   MeshConfig{.dp = 2, .zero = 3}, MeshConfig{.pp = 2}}) {
      c.mesh = config(mesh).mesh;
      expect_equal_on_gpus(c, expected, narrow ? 1e-3 : 1e-6);
    }
  }
  test::TemporaryDirectory directory;
  TrainConfig c = config({.dp = 2, .zero = 2});
  c.offload = directory.path();
  expect_equal_on_gpus(c, on_one_cpu());
}

/// Products are timed, and those with GELU's slope or sums of a bias inside are the fastest: in the
/// first micro-batch, which sets, in later ones, which add, and in captured steps.
TEST(TrainOnGpu, TimedProducts) {
  set_gpu_bits(GpuBits::may_differ);
  gpu_on_cpu::set_blas_habits({.ms = {1, 1, 1}, .more_ms = -1});
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    TrainConfig c = config({});
    c.precision = precision;
    auto expected = train(c, cpu);
    auto before = gpu_on_cpu::blas_counts().epilogues;
    for (bool graph : {false, true}) {
      c.graph = graph;
      expect_equal(train(c, one_gpu), expected, 1e-3);
    }
    auto after = gpu_on_cpu::blas_counts().epilogues;
    EXPECT_GT(after[4], before[4]) << "slopes";
    EXPECT_GT(after[5], before[5]) << "sums";
    c.graph = false;
    c.mesh = config({.tp = 2, .sequence_parallel = true}).mesh;
    expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, 1e-3);
    c.mesh = config({.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"}).mesh;
    expect_equal(train(c, one_gpu), expected, 1e-3);
  }
  gpu_on_cpu::set_blas_habits({});
  set_gpu_bits(GpuBits::repeat);
}

/// A captured step has the bits of one that is queued: with dropout, clipping, a changing rate,
/// accumulation, and a loss scale that falls.
void expect_same_bits(TrainConfig c, Device device, GpuTransport transport) {
  c.steps = 5;
  auto queued = train(c, device, transport);
  c.graph = true;
  auto captured = train(c, device, transport);
  ASSERT_EQ(queued.size(), size_t(c.steps));
  ASSERT_EQ(captured.size(), size_t(c.steps));
  for (size_t i = 0; i < queued.size(); ++i) {
    EXPECT_EQ(captured[i].loss, queued[i].loss) << i;
    EXPECT_EQ(captured[i].grad_norm, queued[i].grad_norm) << i;
    EXPECT_EQ(captured[i].skipped, queued[i].skipped) << i;
    EXPECT_EQ(captured[i].loss_scale, queued[i].loss_scale) << i;
  }
}

TEST(TrainOnGpu, CapturedSteps) {
  expect_same_bits(config({}), one_gpu, GpuTransport::host);
  expect_same_bits(config({.dp = 2, .zero = 1}), own_gpu, GpuTransport::nccl);
  expect_same_bits(config({.tp = 2}), own_gpu, GpuTransport::nccl);
}

TEST(TrainOnGpu, CapturedStepsInFp16) {
  TrainConfig c = config({});
  c.precision = "fp16";
  expect_same_bits(c, one_gpu, GpuTransport::host);
}

TEST(TrainOnGpu, RanksThatMeetOnTheHostCannotBeCaptured) {
  TrainConfig c = config({.dp = 2});
  c.graph = true;
  test::expect_error([&] { train(c, one_gpu); }, {"graph with 2 ranks over", "--comm nccl"},
                     Exit::config);
}

TEST(TrainOnGpu, AStepNeitherAllocatesNorWaits) {
  TextData text(some_text(), Tokenizer::from_text(some_text(), "text"),
                {.context = 8, .name = "text"});
  auto rank = [&](parallel::World& world) {
    parallel::Mesh mesh(world.comm(), {.dp = 1});
    TrainConfig c = config({});
    Stepper stepper(c, text, mesh);
    gpu_on_cpu::Calls before;
    for (int64_t step = 1; step <= 8; ++step) {
      if (step == 6) before = gpu_on_cpu::calls();
      stepper.take(step);
      (void)stepper.records(Stepper::Upto::lag);
    }
    auto after = gpu_on_cpu::calls();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_LE(after.pinned - before.pinned, 5);  // what the host gives to one step
    // The records of three steps: two marks each, a step behind the device's work.
    EXPECT_LE(after.host_waits - before.host_waits, 6);
    EXPECT_GT(after.works, before.works);
  };
  parallel::run_worlds(1, rank, {.device = one_gpu});
}

}  // namespace
}  // namespace triax::minigpt
