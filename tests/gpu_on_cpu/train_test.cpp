// minigpt's training step on GPUs, on any mesh, against one rank on the CPU: loss and gradient norm
// of every step.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "examples/minigpt/config.h"
#include "examples/minigpt/model.h"
#include "tests/gpu_on_cpu/libraries/blas.h"
#include "tests/gpu_on_cpu/libraries/nccl.h"
#include "tests/gpu_on_cpu/runtime.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/gpus.h"
#include "triax/parallel/train/model/feed.h"
#include "triax/parallel/train/step/step.h"

namespace triax::minigpt {
namespace {

using parallel::GpuTransport;
using parallel::StepResult;
using parallel::WorldOptions;

constexpr int64_t steps = 4;
constexpr Device one_gpu{Device::Kind::cuda, 0};
constexpr Device own_gpu{Device::Kind::cuda, WorldOptions::own_gpu};

std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

/// How the ranks share the work.
struct Share {
  int dp = 1, pp = 1, tp = 1;
  bool sequence = false;
  int zero = 0;
  std::string schedule = "1f1b";
};

struct Job {
  ModelConfig model{.layers = 2, .heads = 2, .width = 8, .context = 8, .dropout = 0.1, .vocab = 16};
  parallel::StepOptions step = {.micro_batch = 1, .global_batch = 4, .clip = 0.5};
  int64_t steps = triax::minigpt::steps;

  void share(const Share& s) {
    step.mesh = {s.dp, s.pp, s.tp};
    step.sequence_parallel = s.sequence;
    step.zero = parallel::Zero(s.zero);
    step.schedule = s.schedule;
    step.chunks = step.schedules.at(s.schedule).chunks;
  }
};

Job config(const Share& share) {
  Job c;
  c.share(share);
  return c;
}

/// The steps of one rank.
class Steps {
 public:
  Steps(const Job& c, parallel::World& world)
      : mesh_(world.comm(), c.step.mesh),
        feed_(samples(c), uint64_t(c.step.seed),
              {c.step.micro_batch, c.step.global_batch, mesh_.dp().rank(), mesh_.dp().size()}),
        rate_{.peak = 1e-3, .low = 1e-4, .warmup = 2, .steps = c.steps},
        step_(mesh_, build(c), c.step,
              parallel::probe(build(c), feed_.at(1, 0), parallel::probe_options(c.step))) {}

  void take(int64_t number) {
    step_.take({.number = number,
                .batches = [this, number](int64_t micro) { return feed_.at(number, micro); },
                .weight = feed_.weight(number),
                .lr = rate_.at(step_.updates() + 1)});
  }
  std::vector<StepResult> results(parallel::Step::Await await) { return step_.results(await); }

 private:
  static parallel::Build build(const Job& c) {
    return [model = c.model](auto& tp) { return std::make_unique<Gpt>(model, tp); };
  }
  static std::shared_ptr<const nn::Samples> samples(const Job& c) {
    auto tokenizer = text::Tokenizer::from_text(some_text(), "text");
    text::TextData data(some_text(), tokenizer, {.context = c.model.context, .name = "text"});
    return data.train_samples();
  }
  parallel::Mesh mesh_;
  parallel::Feed feed_;
  optim::Schedule rate_;
  parallel::Step step_;
};

/// What the first rank recorded.
std::vector<StepResult> train(const Job& c, Device device,
                              GpuTransport transport = GpuTransport::host) {
  std::vector<StepResult> results;
  auto rank = [&](parallel::World& world) {
    Steps all(c, world);
    for (int64_t step = 1; step <= c.steps; ++step) {
      all.take(step);
      auto await = step == c.steps ? parallel::Step::Await::all : parallel::Step::Await::oldest;
      for (auto& r : all.results(await))
        if (world.rank() == 0) results.push_back(r);
    }
  };
  parallel::run_worlds(c.step.mesh.size(), rank, {.device = device, .gpu_transport = transport});
  return results;
}

void expect_equal(const std::vector<StepResult>& got, const std::vector<StepResult>& expected,
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

const std::vector<StepResult>& on_one_cpu() {
  static const auto records = train(config({}), cpu);
  return records;
}

TEST(TrainOnGpu, OneRank) { expect_equal(train(config({}), one_gpu), on_one_cpu(), 1e-6); }

TEST(TrainOnGpu, RanksThatShareIt) {
  for (int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("zero {}", zero));
    expect_equal(train(config({.dp = 2, .zero = zero}), one_gpu), on_one_cpu(), 1e-6);
  }
  expect_equal(train(config({.pp = 2, .tp = 2, .sequence = true}), one_gpu), on_one_cpu(), 1e-6);
}

TEST(TrainOnGpu, RanksWithGpusOfTheirOwn) {
  for (const Share& mesh :
       {Share{.dp = 2}, Share{.dp = 2, .zero = 1}, Share{.dp = 2, .zero = 3},
        Share{.tp = 2, .sequence = true}, Share{.pp = 2}, Share{.dp = 2, .tp = 2, .zero = 2}}) {
    SCOPED_TRACE(fmt::format("dp {} pp {} tp {} zero {}", mesh.dp, mesh.pp, mesh.tp, mesh.zero));
    expect_equal(train(config(mesh), own_gpu, GpuTransport::nccl), on_one_cpu(), 1e-6);
  }
}

// Two launches for a bucket in a step: its gradient is summed, with ZeRO 2 in each micro-batch, and
// its weights are gathered.
TEST(TrainOnGpu, ABucketIsTwoLaunches) {
  for (int zero : {1, 2}) {
    Job c = config({.dp = 2, .zero = zero});
    gpu_on_cpu::nccl::behave({});
    train(c, own_gpu, GpuTransport::nccl);
    std::map<std::string, int64_t> count;
    for (auto& call : gpu_on_cpu::nccl::calls())
      if (call.world_rank == 0 && call.comm.starts_with("dp")) ++count[call.function];
    int64_t gathers = count["all_gather"], micros = zero == 2 ? c.step.accumulation() : 1;
    EXPECT_GT(gathers, 0);
    EXPECT_EQ(gathers % steps, 0);
    EXPECT_EQ(count["reduce_scatter"], micros * gathers);
    for (auto& [function, calls] : count)
      EXPECT_TRUE(function == "all_gather" || function == "reduce_scatter" ||
                  function == "finalize")
          << calls << " " << function;
  }
}

TEST(TrainOnGpu, InOtherPrecisions) {
  for (DType dtype : {bf16, f16}) {
    SCOPED_TRACE(name(dtype));
    Job c = config({});
    c.step.dtype = dtype;
    auto expected = train(c, cpu);
    expect_equal(train(c, one_gpu), expected, 1e-3);
    c.share({.dp = 2});
    expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, 1e-3);
  }
}

/// Any mesh with any schedule, on a shared GPU and with GPUs over NCCL.
void expect_equal_on_gpus(const Job& c, const std::vector<StepResult>& expected,
                          double within = 1e-6) {
  const auto& m = c.step.mesh;
  SCOPED_TRACE(fmt::format("dp {} pp {} tp {} zero {} {}", m.dp, m.pp, m.tp, int(c.step.zero),
                           c.step.schedule));
  expect_equal(train(c, one_gpu), expected, within);
  expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, within);
}

TEST(TrainOnGpu, EverySchedule) {
  Job deep = config({});
  deep.model.layers = 4;
  auto expected = train(deep, cpu);
  for (const std::string& schedule : parallel::schedule_names()) {
    deep.share({.pp = 2, .schedule = schedule});
    expect_equal_on_gpus(deep, expected);
  }
  deep.share({.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"});
  expect_equal_on_gpus(deep, expected);
  deep.share({.pp = 2, .tp = 2, .sequence = true, .schedule = "interleaved"});
  expect_equal_on_gpus(deep, expected);
}

/// In a process of its own, where no product is known before the pipeline begins: each is found
/// while messages wait for their receiver.
void expect_equal_alone(const std::string& schedule, int micros, int pp = 2) {
  SCOPED_TRACE(fmt::format("{}, {} micro-batches, pp {}", schedule, micros, pp));
  auto alone = [&] {
    ::setenv("TRIAX_TIMEOUT", "20", 1);
    Job c = config({});
    c.model.layers = 2 * pp;
    c.step.global_batch = micros;
    auto expected = train(c, cpu);
    c.share({.pp = pp, .schedule = schedule});
    expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, 1e-6);
    std::_Exit(testing::Test::HasFailure());
  };
  EXPECT_EXIT(alone(), testing::ExitedWithCode(0), "");
}

TEST(TrainOnGpuDeathTest, SchedulesInProcessesOfTheirOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* schedule : {"1f1b", "zb-h1"}) expect_equal_alone(schedule, 9);
  for (int micros : {4, 15}) expect_equal_alone("zb-2p", micros);
  for (const char* schedule : {"zb-v", "dualpipev"}) expect_equal_alone(schedule, 16);
  // All but zb-interleaved with 8 hang in NCCL's order of launches (the next test).
  for (int micros : {5, 9}) expect_equal_alone("interleaved", micros);
  for (int micros : {7, 8}) expect_equal_alone("zb-interleaved", micros);
  expect_equal_alone("interleaved", 11, 4);
  expect_equal_alone("zb-v", 16, 4);
}

/// A send that is not taken and another one behind it hold up all later calls, of other links too.
TEST(TrainOnGpuDeathTest, InNcclsOrderOfLaunchesInterleavedStagesHang) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto hangs = [] {
    ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    ::setenv("TRIAX_TIMEOUT", "3", 1);
    Job c = config({});
    c.model.layers = 4;
    c.step.global_batch = 5;
    c.share({.pp = 2, .schedule = "interleaved"});
    train(c, own_gpu, GpuTransport::nccl);
  };
  EXPECT_EXIT(hangs(), testing::ExitedWithCode(int(Exit::peer_lost)), "no progress in group link");
}

/// Without dropout a GPU with whole layers adds residuals inside of products; with tp it cannot.
TEST(TrainOnGpu, WithoutDropout) {
  using enum parallel::Recompute;
  for (DType dtype : {f32, bf16, f16})
    for (parallel::Recompute recompute : {off, selective}) {
      if (dtype != f32 && recompute != off) continue;
      SCOPED_TRACE(testing::Message() << name(dtype) << ", recompute " << int(recompute));
      Job c = config({});
      c.model.dropout = 0;
      c.step.dtype = dtype;
      auto expected = train(c, cpu);
      c.step.recompute = recompute;
      for (const Share& mesh :
           {Share{.dp = 1}, Share{.dp = 2, .zero = 3}, Share{.pp = 2, .schedule = "zb-h1"},
            Share{.dp = 2, .pp = 2, .zero = 2}, Share{.pp = 2, .tp = 2, .sequence = true}}) {
        c.share(mesh);
        expect_equal_on_gpus(c, expected, dtype == f32 ? 1e-6 : 1e-3);
      }
    }
}

TEST(TrainOnGpu, Recomputation) {
  using enum parallel::Recompute;
  for (parallel::Recompute recompute : {selective, block, block_split}) {
    SCOPED_TRACE(int(recompute));
    for (const Share& mesh :
         {Share{.dp = 1}, Share{.dp = 2, .zero = 3}, Share{.pp = 2, .tp = 2, .sequence = true}}) {
      if (mesh.tp == 1 && recompute == block_split) continue;
      Job c = config(mesh);
      c.step.recompute = recompute;
      expect_equal_on_gpus(c, on_one_cpu());
    }
  }
}

TEST(TrainOnGpu, OffloadedState) {
  for (DType dtype : {f32, bf16, f16}) {
    SCOPED_TRACE(name(dtype));
    Job c = config({});
    c.step.dtype = dtype;
    auto expected = train(c, cpu);
    bool narrow = dtype != f32;
    c.step.offload = parallel::Offloaded::optimizer;
    for (const Share& mesh :
         {Share{.dp = 1}, Share{.dp = 2, .zero = 1}, Share{.dp = 2, .zero = 3}, Share{.pp = 2}}) {
      c.share(mesh);
      expect_equal_on_gpus(c, expected, narrow ? 1e-3 : 1e-6);
    }
  }
  test::TemporaryDirectory directory;
  Job c = config({.dp = 2, .zero = 2});
  c.step.offload = parallel::Offloaded::optimizer;
  c.step.offload_dir = directory.path();
  expect_equal_on_gpus(c, on_one_cpu());
  for (const Share& mesh : {Share{.dp = 1, .zero = 3}, Share{.dp = 2, .pp = 2, .zero = 3},
                            Share{.tp = 2, .sequence = true, .zero = 3}})
    for (const std::string& to : {std::string(), directory.path()}) {
      c = config(mesh);
      c.step.offload = parallel::Offloaded::parameters;
      c.step.offload_dir = to;
      expect_equal_on_gpus(c, on_one_cpu());
    }
}

/// Products are timed, and those with GELU's slope or sums of a bias inside are the fastest: in the
/// first micro-batch, which sets, in later ones, which add, and in captured steps.
TEST(TrainOnGpu, TimedProducts) {
  set_gpu_bits(GpuBits::may_differ);
  gpu_on_cpu::set_blas_habits({.ms = {1, 1, 1}, .more_ms = -1});
  for (DType dtype : {bf16, f16}) {
    SCOPED_TRACE(name(dtype));
    Job c = config({});
    c.step.dtype = dtype;
    auto expected = train(c, cpu);
    auto before = gpu_on_cpu::blas_counts().epilogues;
    for (bool graph : {false, true}) {
      c.step.graph = graph;
      expect_equal(train(c, one_gpu), expected, 1e-3);
    }
    auto after = gpu_on_cpu::blas_counts().epilogues;
    EXPECT_GT(after[4], before[4]) << "slopes";
    EXPECT_GT(after[5], before[5]) << "sums";
    c.step.graph = false;
    c.share({.tp = 2, .sequence = true});
    expect_equal(train(c, own_gpu, GpuTransport::nccl), expected, 1e-3);
    c.share({.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"});
    expect_equal(train(c, one_gpu), expected, 1e-3);
  }
  gpu_on_cpu::set_blas_habits({});
  set_gpu_bits(GpuBits::repeat);
}

/// A captured step has the bits of one that is queued: with dropout, clipping, a changing rate,
/// accumulation, and a loss scale that falls.
void expect_same_bits(Job c, Device device, GpuTransport transport) {
  c.steps = 5;
  auto queued = train(c, device, transport);
  c.step.graph = true;
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
  Job grouped = config({});
  grouped.step.groups = "*.bias:lr=2,decay=0.1";
  expect_same_bits(grouped, one_gpu, GpuTransport::host);
}

TEST(TrainOnGpu, CapturedStepsInFp16) {
  Job c = config({});
  c.step.dtype = f16;
  expect_same_bits(c, one_gpu, GpuTransport::host);
}

TEST(TrainOnGpu, RanksThatMeetOnTheHostCannotBeCaptured) {
  Job c = config({.dp = 2});
  c.step.graph = true;
  test::expect_config_error([&] { train(c, one_gpu); }, {"graph with 2 ranks over", "--comm nccl"});
}

TEST(TrainOnGpu, AStepNeitherAllocatesNorWaits) {
  auto rank = [&](parallel::World& world) {
    Steps all(config({}), world);
    gpu_on_cpu::Calls before;
    for (int64_t step = 1; step <= 8; ++step) {
      if (step == 6) before = gpu_on_cpu::calls();
      all.take(step);
      (void)all.results(parallel::Step::Await::oldest);
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
