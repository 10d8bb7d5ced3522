// Mixtures of experts: a model of them trains as on one rank with all experts, on meshes with every
// other axis, also bit for bit.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/context/context_parallel.h"
#include "triax/parallel/experts/mixture.h"
#include "triax/parallel/mesh.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::experts_test {

using namespace test;

constexpr int64_t width = 16, heads = 4, time = 16, vocabulary = 11;

/// Attention, then a mixture.
struct Reader : nn::Module {
  Reader(const TensorParallel& tp, const MixtureOptions& o)
      : heads_here(heads / tp.size()),
        norm(child<RmsNorm>("norm", width, tp)),
        qkv(child<ColumnLinear>("qkv", width, 3 * width, tp,
                                SplitLinearOptions{0.3, false, 3 * width / heads})),
        out(child<RowLinear>("out", width, width, tp, SplitLinearOptions{0.3, false})),
        experts(child<Mixture>("experts", width, o, tp)) {}
  Tensor operator()(const Tensor& given, const nn::Batch& batch) const {
    Tensor x = out.onto(
        given,
        nn::attend(*this, batch, view(qkv(norm(given)), {-1, heads_here, 3, width / heads})));
    return x + experts(norm(x), batch);
  }
  int64_t heads_here;
  RmsNorm& norm;
  ColumnLinear& qkv;
  RowLinear& out;
  Mixture& experts;
};

struct Text : nn::Sequence {
  Text(const TensorParallel& tp, const MixtureOptions& o) {
    add<TokenLayer>("tokens", vocabulary, width, tp, VocabularyOptions{.std = 0.5});
    for (int i = 0; i < 3; ++i) add<Reader>(fmt::format("reader{}", i), tp, o);
    add<ClassHead>("head", vocabulary, width, tp, VocabularyOptions{.std = 0.3});
  }
};

MixtureOptions mixture() {
  return {.router = {.experts = 8, .top_k = 2, .std = 0.5, .balance = 0.1, .z_loss = 0.01},
          .hidden = 8,
          .std = 0.3,
          .out_std = 0.3};
}

Task task(const MixtureOptions& o = mixture()) {
  std::vector<int32_t> ids(size_t(64 * time)), next = ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = int32_t(random::philox(5, i, 0).x % vocabulary);
    next[i] = i % 7 == 0 ? -1 : int32_t(random::philox(5, i + 1, 0).x % vocabulary);
  }
  return {.build = [o](auto& tp) { return std::make_unique<Text>(tp, o); },
          .samples = std::make_shared<nn::TensorSamples>(from_host(ids, {64, time}, cpu),
                                                         from_host(next, {64, time}, cpu))};
}

TrainOptions options(const MeshShape& mesh) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 1, o.steps = 2, o.step.global_batch = 2 * mesh.replicas();
  return o;
}

AxisKind nodes() {
  return {.name = "own", .cuts = Cuts::samples, .zeros = AxisKind::Zeros::replicate};
}

AxisKind rows_by_gather() {
  return {.name = "own", .cuts = Cuts::rows, .share = rows_of_rank, .rows = [](Communicator& c) {
            return std::make_unique<ContextParallel>(c, ContextForm::gather);
          }};
}

TEST(ExpertParity, AxesOfAProgramTrainTheSame) {
  for (auto& kind : {nodes(), rows_by_gather()})
    for (MeshShape mesh : {MeshShape{.ep = 2}, {.dp = 2, .ep = 2}, {.tp = 2, .ep = 2}})
      for (Zero zero : {Zero::off, Zero::gradients, Zero::parameters}) {
        auto o = options(mesh);
        o.step.add_axis(kind);
        o.step.mesh.size_of("own") = 2, o.step.zero = zero;
        o.step.global_batch = 4 * o.step.mesh.replicas();
        std::string text = fmt::format("{} ZeRO {}", str(o.step.mesh), int(zero));
        EXPECT_EQ(difference(task(), o), "") << text;
        o.step.bitwise = mesh.tp == 1 && kind.cuts == Cuts::samples;
        if (!o.step.bitwise) continue;
        EXPECT_EQ(difference(task(), o), "") << text << " bits";
      }
}

/// A step of gradient descent by each rank itself, then the mean of their weights: with equal
/// shares of the samples, data parallelism.
struct MeanOfSites final : optim::Optimizer {
  MeanOfSites(const std::vector<optim::Slot>& s, Communicator& c) : slots(s), sites(c) {}
  std::vector<optim::SlotState> state() const override { return {}; }
  void update(const StepDecision& d) override {
    for (auto& s : slots) {
      Tensor mean = (s.weight - s.grad * (d.lr * d.grad_scale)) * (1. / sites.size());
      sites.all_reduce(mean).wait();
      copy_(s.weight, mean);
    }
  }
  std::vector<optim::Slot> slots;
  Communicator& sites;
};

// Counts of experts are of all sites, though each has gradients of its own.
TEST(ExpertParity, SitesWithWeightsOfTheirOwnCountTogether) {
  for (MeshShape mesh : {MeshShape{}, {.ep = 2}, {.dp = 2, .pp = 2}}) {
    auto o = options(mesh);
    o.step.add_axis({.name = "sites",
                     .cuts = Cuts::samples | Cuts::weights,
                     .around = [](auto, auto& slots, auto& ranks) {
                       return std::make_unique<MeanOfSites>(slots, ranks);
                     }});
    o.step.mesh.size_of("sites") = 2;
    o.step.global_batch = 4 * o.step.mesh.replicas(), o.step.clip = 0;
    MixtureOptions m = mixture();
    m.router.bias_rate = 0.01;
    EXPECT_EQ(difference(task(m), o), "") << str(o.step.mesh);
  }
}

TEST(ExpertParity, AnyMeshTrainsTheSame) {
  uint64_t drawn = 0;
  auto draw = [&](uint32_t n) { return int(random::philox(8, ++drawn, 0).x % n); };
  for (MeshShape mesh : {MeshShape{.ep = 2},
                         {.ep = 8},
                         {.dp = 2, .ep = 2},
                         {.pp = 2, .ep = 4},
                         {.tp = 2, .ep = 2},
                         {.tp = 2},
                         {.cp = 2, .ep = 2},
                         {.pp = 2, .tp = 2, .cp = 2, .ep = 2}})
    for (DType dtype : {f32, bf16, f16})
      for (int turn = 0; turn < 2; ++turn) {
        auto o = options(mesh);
        MixtureOptions m = mixture();
        o.step.micro_batch = 1 + turn, o.step.global_batch = 4 * mesh.replicas();
        o.step.dtype = dtype, o.step.zero = Zero(draw(4));
        o.step.sequence_parallel = mesh.tp > 1 && draw(2) == 0;
        o.step.recompute = draw(3) == 0 ? Recompute::block : Recompute::off;
        o.step.schedule = draw(2) == 0 ? "zb-h1" : "1f1b";
        m.shared = draw(3), m.router.capacity = draw(3) == 0 ? 1 : 0;
        m.router.bias_rate = draw(2) == 0 ? 0.01 : 0;
        m.router.score = RouterOptions::Score(draw(2)),
        m.router.over = RouterOptions::Over(draw(2));
        EXPECT_EQ(difference(task(m), o), "")
            << str(mesh) << " draws up to " << drawn << " " << name(dtype);
      }
}

TEST(ExpertParity, BitForBitToo) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{.ep = 2}, {.dp = 2, .ep = 4}, {.pp = 2, .cp = 2, .ep = 2}})
    for (DType dtype : {f32, bf16}) {
      auto o = options(mesh);
      MixtureOptions m = mixture();
      m.router.capacity = ++number % 2, m.router.bias_rate = 0.01;
      m.router.top_k = 2 + number % 2;  // shares of a third have no exact sums
      o.step.cp_form = number % 2 ? ContextForm::heads : ContextForm::gather;
      o.step.zero = Zero(number % 4), o.step.micro_batch = 1 + number % 2;
      o.step.recompute = number % 3 == 0 ? Recompute::block : Recompute::off;
      o.step.global_batch = 4 * mesh.replicas();
      o.step.bitwise = true, o.step.row_parts = 4, o.step.dtype = dtype;
      EXPECT_EQ(difference(task(m), o), "") << str(mesh) << " " << name(dtype);
    }
}

// Where two scores are equal but for rounding a mesh follows one rank, and in no other row.
TEST(ExpertParity, FollowsChoicesWhereScoresAreEqualButForRounding) {
  auto rows = [](std::vector<int32_t> v) { return from_host(v, {std::ssize(v) / 2, 2}, cpu); };
  Tensor scores =
      from_host(std::vector<float>{.5f, .2f, .2000001f, .1f, .5f, .2f, .3f, 0}, {2, 4}, cpu);
  NotedChoices one;
  one.settled("a", {7, 8}, rows({0, 1, 0, 1}), scores);
  NotedChoices mesh(&one, 1e-5);
  Tensor settled = mesh.settled("a", {7, 8}, rows({0, 2, 0, 2}), scores);
  EXPECT_EQ(settled.to_host<int32_t>(), (std::vector<int32_t>{0, 1, 0, 2}));
  EXPECT_EQ(mesh.rows().followed, 1);
  EXPECT_EQ(mesh.rows().all, 2);
  EXPECT_EQ(mesh.settled("b", {7, 8}, rows({0, 2, 0, 2}), scores).to_host<int32_t>(),
            (std::vector<int32_t>{0, 2, 0, 2}))
      << "another router";
}

// The one definition that depends on what is in the micro-batch says so, and differs.
TEST(ExpertParity, BalanceOfAMicroBatchDependsOnTheMesh) {
  MixtureOptions m = mixture();
  m.router.over = RouterOptions::Over::micro_batch;
  std::string said = difference(task(m), options({.ep = 2}));
  EXPECT_NE(said.find("router.weight"), said.npos) << said;
}

TEST(ExpertParity, RefusesExpertsThatRanksDoNotDivide) {
  EXPECT_EQ(error_of([] { difference(task(), options({.ep = 3})); }, Exit::config),
            "reader0: experts: expert parallel: ep=3 does not divide 8 experts\n"
            "  Valid ep for them: 1, 2, 4, 8.");
}

}  // namespace triax::parallel::experts_test
