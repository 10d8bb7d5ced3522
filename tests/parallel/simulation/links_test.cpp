// Ranks that are threads behind links of a given speed, and the same ranks on virtual clocks:
// layers sleep where others compute, so that 16 of them need no 16 cores.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"
#include "tests/support/tiny_task.h"
#include "triax/autograd/record.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/pipeline/schedule.h"
#include "triax/parallel/simulation/simulation.h"

namespace triax::parallel::links_test {

using namespace test;

constexpr double rate = 1e18;  // FLOP/s of virtual ranks: only pauses take time
constexpr int blocks = 16;
constexpr int64_t width = 16, heads = 4, time = 16, vocabulary = 11;

/// The seconds that ranks slept, and should have.
struct Slept {
  std::mutex mutex;
  double told = 0, slept = 0;
};

/// Passes x on, after some time in every pass.
struct Pause : nn::Module {
  Pause(double s, Slept& all)
      : seconds(s), slept(all), weight(parameter({.name = "weight", .full = {256}})) {}
  Tensor operator()(const Tensor& x) const {
    take(x.device());
    return record(
        "pause", x.detach(), {x},
        [this](const Tensor& dy, autograd::Into&) {
          take(dy.device());
          return Tensors{dy};
        },
        {weight},
        [this](const Tensor& dy, autograd::Into&) {
          take(dy.device());
          return Tensors{zeros(weight.full, f32, dy.device())};
        });
  }
  void take(Device device) const {
    if (device == meta_device) {
      meta_work().products += seconds * rate, ++meta_work().matmuls;
      return;
    }
    double took =
        test::seconds([&] { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); });
    std::lock_guard guard(slept.mutex);
    slept.told += seconds, slept.slept += took;
  }
  double seconds;
  Slept& slept;
  nn::Parameter& weight;
};

struct Reader : nn::Module {
  Reader(const TensorParallel& tp, double seconds, Slept& slept)
      : heads_here(heads / tp.size()),
        norm(child<LayerNorm>("norm", width, tp)),
        qkv(child<ColumnLinear>("qkv", width, 3 * width, tp,
                                SplitLinearOptions{.std = 0.3, .unit = 3 * width / heads})),
        out(child<RowLinear>("out", width, width, tp, SplitLinearOptions{.std = 0.3})),
        pause(child<Pause>("pause", seconds, slept)) {
    pause.weight.shard = tp.whole_never_summed();
  }
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    Tensor in = view(qkv(norm(x)), {-1, heads_here, 3, width / heads});
    return pause(x + out(nn::attend(*this, batch, in, {})));
  }
  int64_t heads_here;
  LayerNorm& norm;
  ColumnLinear& qkv;
  RowLinear& out;
  Pause& pause;
};

struct Text : nn::Sequence {
  Text(const TensorParallel& tp, double seconds, Slept& slept) {
    add<TokenLayer>("tokens", vocabulary, width, tp, VocabularyOptions{.std = 0.5});
    for (int i = 0; i < blocks; ++i) add<Reader>(fmt::format("reader{}", i), tp, seconds, slept);
    add<ClassHead>("head", vocabulary, width, tp, VocabularyOptions{.std = 0.3});
  }
};

Task task(double seconds, Slept& slept) {
  std::vector<int32_t> ids(size_t(64 * time), 1);
  Tensor x = from_host(ids, {64, time}, cpu);
  return {.build = [=, &slept](auto& tp) { return std::make_unique<Text>(tp, seconds, slept); },
          .samples = std::make_shared<nn::TensorSamples>(x, x)};
}

constexpr double pause = 0.01;
constexpr LinkSpeed speed{.latency = 8e-3, .bandwidth = 1e6};

/// Returns hosts of one rank with a network card, and kernels that take as long as they are told.
Hardware sleeping() {
  Hardware h{.name = "links", .device = "cpu"};
  h.fp32 = h.low = rate, h.products = h.attention = 1;
  h.bandwidth = INFINITY, h.kernels = h.update = 1;
  h.link = h.network = speed.bandwidth, h.link_part = h.network_part = 1;
  h.latency = speed.latency, h.per_node = 1;
  return h;
}

/// Returns the measured seconds of the second step.
double measured(const Task& task, const StepOptions& o) {
  Subject subject = subject_of(task.build, batch_like(task, o.micro_batch), o);
  std::mutex mutex;
  double longest = 0;
  run_linked_ranks(o.mesh.size(), speed, [&](Communicator& world) {
    LinkClock::time_point begin, end;
    auto before = [&](triax::parallel::Step& step, const StepInput& input) {
      step.take(input);
      world.barrier();
      begin = LinkClock::now();
    };
    (void)rehearse(subject, o, world, {before, [&] { end = LinkClock::now(); }});
    std::chrono::duration<double> mine = end - begin;
    std::lock_guard guard(mutex);
    longest = std::max(longest, mine.count());
  });
  return longest;
}

/// By which share a step takes longer than on virtual clocks, whose pauses are as long as those
/// that ranks took.
double apart(const StepOptions& o) {
  Slept slept, none;
  double real = measured(task(pause, slept), o);
  Task same = task(pause * slept.slept / slept.told, none);
  double simulated = step_seconds(simulate(same, {.train = {.step = o}, .hardware = sleeping()}));
  fmt::print("{} {} ZeRO {}: {:.1f} ms, simulated {:.1f} ms\n", str(o.mesh), o.schedule,
             int(o.zero), 1e3 * real, 1e3 * simulated);
  return std::abs(real / simulated - 1);
}

StepOptions options(const MeshShape& mesh) {
  TrainOptions o;
  o.step.mesh = mesh;
  o.step.micro_batch = 1, o.step.global_batch = 16 * mesh.dp;
  resolve(o, mesh.size());
  return o.step;
}

// 16 threads on two cores need about 0.4 ms for a transfer, which no clock knows.
constexpr double most = 0.08;

TEST(VirtualClock, KeepsTimeWithRanksOfEveryZeroStage) {
  for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters}) {
    StepOptions o = options({.dp = 16});
    o.zero = zero, o.global_batch = 32;
    EXPECT_LE(least(most, [&] { return apart(o); }), most) << int(zero);
  }
}

TEST(VirtualClock, KeepsTimeWithStagesOfEverySchedule) {
  for (auto& name : schedule_names()) {
    StepOptions o = options({.dp = 2, .pp = 8});
    o.schedule = name, o.chunks = o.schedules.at(name).chunks;
    EXPECT_LE(least(most, [&] { return apart(o); }), most) << name;
  }
}

TEST(VirtualClock, KeepsTimeWithRowsAndSlices) {
  for (ContextForm form : {ContextForm::ring, ContextForm::heads, ContextForm::gather}) {
    StepOptions o = options({.dp = 4, .cp = 4});
    o.cp_form = form, o.global_batch = 8;
    EXPECT_LE(least(most, [&] { return apart(o); }), most) << int(form);
  }
  StepOptions o = options({.dp = 2, .pp = 2, .tp = 4});
  o.sequence_parallel = true, o.global_batch = 8;
  EXPECT_LE(least(most, [&] { return apart(o); }), most);
}

}  // namespace triax::parallel::links_test
