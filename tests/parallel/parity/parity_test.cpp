// Parity of models that the library has never seen: an MLP whose stages differ, with every ZeRO
// stage, schedule and precision, and with callbacks, an optimizer and a schedule of the program's
// own.
#include "triax/parallel/parity/parity.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/optim/lion.h"
#include "triax/optim/sgd.h"

namespace triax::parallel::parity_test {

using namespace test;

TEST(AnyModelParity, MeshesZeroAndSchedules) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 4, 1}, {1, 1, 4}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3})
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        auto o = tiny_options(mesh);
        o.step.zero = Zero(zero), o.step.schedule = schedule, o.steps = 2;
        o.step.micro_batch = 4;
        o.step.sequence_parallel = ++number % 2 == 0;
        o.step.tp_pieces = 1 + number / 2 % 3;
        o.step.recompute = number % 3 == 0 ? Recompute::block : Recompute::off;
        if (mesh.pp == 1 && schedule != std::string("1f1b")) continue;
        EXPECT_EQ(difference(task_of(), o), "")
            << mesh.dp << mesh.pp << mesh.tp << " ZeRO " << zero << " " << schedule;
      }
}

/// A norm over each head of a split stretch, whose gamma all tensor-parallel ranks hold (QK norm).
struct HeadNorm : nn::Module {
  explicit HeadNorm(const TensorParallel& tp)
      : up(child<ColumnLinear>("up", 16, 32, tp, SplitLinearOptions{.std = 0.3, .unit = 8})),
        norm(child<nn::RmsNorm>("norm", 8, nn::NormOptions{.shard = tp.whole_always_summed()})),
        down(child<RowLinear>("down", 32, 16, tp, SplitLinearOptions{.std = 0.3, .unit = 8})) {}
  Tensor operator()(const Tensor& x) const {
    Tensor h = up(x);
    return x + down(relu(view(norm(view(h, {-1, 8})), h.shape())));
  }
  ColumnLinear& up;
  nn::RmsNorm& norm;
  RowLinear& down;
};
struct HeadNormNet : nn::Sequence {
  explicit HeadNormNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<HeadNorm>("heads", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

/// A layer that mixes rows: it has all of them, alike on all tensor-parallel ranks.
template <bool right> struct Mixes : nn::Module {
  explicit Mixes(const TensorParallel& ranks)
      : tp(ranks),
        before(parameter({"before", {16}, {.std = 0.3}, shard()})),
        mix(child<nn::Linear>("mix", 16, 16, nn::LinearOptions{.std = 0.3, .shard = shard()})) {}
  nn::Shard shard() const { return right ? tp.whole_never_summed() : tp.whole(); }
  Tensor operator()(const Tensor& x) const {
    Tensor all = tp.gather_rows(x);
    Tensor mixed = tanh(mix(all)) + expand(before.value, all.shape());
    return x + tp.scatter_rows(mixed + mean(mixed, {0}, Keep::yes));
  }
  TensorParallel tp;
  nn::Parameter& before;
  nn::Linear& mix;
};
template <bool right> struct MixingNet : nn::Sequence {
  explicit MixingNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block", tp);
    add<Mixes<right>>("mixes", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(AnyModelParity, WholeParametersOfGatheredRows) {
  for (MeshShape mesh : {MeshShape{1, 1, 4}, {2, 1, 2}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3})
      for (bool sequence : {false, true}) {
        auto o = tiny_options(mesh);
        o.step.zero = Zero(zero), o.step.sequence_parallel = sequence;
        o.step.tp_pieces = 1 + zero;
        o.step.micro_batch = 8, o.step.global_batch = 16, o.steps = 2;
        SCOPED_TRACE(fmt::format("{}{}{} ZeRO {}", mesh.dp, mesh.pp, mesh.tp, zero));
        auto apart = [&](const Task& task) {
          auto one = trace(task, reference_of(o, OneRank::same_micro_batches));
          auto d = compare_with_reference(task, o, one);
          return d ? d->what + " of " + d->name : "";
        };
        for (DType dtype : {bf16, f16, f32}) {
          o.step.dtype = dtype;
          EXPECT_EQ(apart(task_of<MixingNet<true>>()), "") << name(dtype);
        }
        if (sequence)
          expect_config_error([&] { apart(task_of<MixingNet<false>>()); },
                              {"the same gradient of mixes.", "tp.whole_never_summed()"});
        else EXPECT_EQ(apart(task_of<MixingNet<false>>()), "");
      }
}

TEST(AnyModelParity, WholeParametersInsideOfASplitStretch) {
  for (MeshShape mesh : {MeshShape{1, 1, 2}, {1, 1, 4}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3}) {
      auto o = tiny_options(mesh);
      o.step.zero = Zero(zero), o.step.micro_batch = 4, o.steps = 2, o.step.tp_pieces = 1 + zero;
      for (bool sequence : {false, true}) {
        o.step.sequence_parallel = sequence;
        EXPECT_EQ(difference(task_of<HeadNormNet>(), o), "") << mesh.size() << " ZeRO " << zero;
      }
    }
}

/// A loss that is a mean over the micro-batch.
struct MeanHead : ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& b) const {
    return cross_entropy(logits(x), b.target);
  }
};
struct MeanNet : nn::Sequence {
  explicit MeanNet(const TensorParallel& tp) { add<MeanHead>("head", 4, 16, tp); }
};

TEST(AnyModelParity, TheBatchThatIsChosenHasSeveralMicroBatches) {
  for (MeshShape mesh : {MeshShape{1, 1, 1}, {1, 1, 2}, {1, 3, 1}, {2, 1, 1}}) {
    auto o = tiny_options(mesh);
    o.step.micro_batch = 4, o.step.global_batch = 0;
    choose_batch(o);
    EXPECT_EQ(o.step.global_batch, 4 * mesh.dp * std::max(2, mesh.pp));
    o.step.global_batch = 4;
    choose_batch(o);
    EXPECT_EQ(o.step.global_batch, 4) << "one that is given stays";
  }
  auto o = tiny_options();
  o.step.micro_batch = 4, o.step.global_batch = 0;
  EXPECT_EQ(parity(task_of<MeanNet>(), o), Exit::differs);
}

TEST(AnyModelParity, BatchesOfOtherShapesAreRefused) {
  struct Longer : nn::TensorSamples {
    using TensorSamples::TensorSamples;
    nn::Batch batch(std::span<const int64_t> indices) const override {
      auto b = TensorSamples::batch(indices);
      return indices[0] < 8 ? b : nn::Batch{b.input.narrow(1, 0, 8), b.target};
    }
  };
  Task task = task_of();
  task.samples = std::make_shared<Longer>(zeros({64, 16}, f32, cpu), zeros({64}, i32, cpu));
  auto o = tiny_options();
  expect_config_error([&] { trace(task, o); }, {"expected batches of one shape"});
}

TEST(AnyModelParity, LowPrecisions) {
  for (DType dtype : {bf16, f16})
    for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
      auto o = tiny_options(mesh);
      o.step.dtype = dtype, o.step.zero = Zero::optimizer, o.step.micro_batch = 4;
      EXPECT_EQ(difference(task_of(), o), "") << name(dtype) << mesh.dp << mesh.pp << mesh.tp;
    }
}

/// 1F1B with all warm-up forwards that there are.
Actions all_first(const PipelineShape& shape, int stage) { return gpipe(shape, stage); }

TEST(AnyModelParity, OptimizerAndScheduleOfTheProgramsOwn) {
  auto o = tiny_options({.dp = 2, .pp = 2});
  o.step.micro_batch = 2;
  o.step.schedules["mine"] = all_first, o.step.schedule = "mine";
  o.step.zero = Zero::gradients;
  o.step.optimizer = [](const std::vector<optim::Slot>& slots) {
    return std::make_unique<optim::Sgd>(slots, optim::SgdOptions{.momentum = 0.9});
  };
  EXPECT_EQ(difference(task_of(), o), "");
}

/// Lion moves a weight by the sign of its average: gradients that differ in rounding alone must not
/// be an alarm, where the sign hangs on it.
TEST(AnyModelParity, LionOnAnyMesh) {
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 2, 2}})
    for (int zero : {0, 1, 3}) {
      auto o = tiny_options(mesh);
      o.step.zero = Zero(zero), o.step.micro_batch = 4, o.steps = 3;
      o.step.optimizer = [](const std::vector<optim::Slot>& slots) {
        return std::make_unique<optim::Lion>(slots);
      };
      EXPECT_EQ(difference(task_of(), o), "") << mesh.dp << mesh.pp << mesh.tp << " ZeRO " << zero;
    }
}

TEST(AnyModelParity, LionInAnyPrecision) {
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 2, 2}})
    for (int zero : {0, 1, 3})
      for (DType dtype : {f32, bf16, f16}) {
        auto o = tiny_options(mesh);
        o.step.zero = Zero(zero), o.step.micro_batch = 4, o.steps = 3, o.step.dtype = dtype;
        o.step.algorithm = Algorithm::lion;
        EXPECT_EQ(difference(task_of(), o), "")
            << name(dtype) << ' ' << mesh.dp << mesh.pp << mesh.tp << " ZeRO " << zero;
      }
}

TEST(AnyModelParity, GradientsSentInBf16) {
  struct Case {
    MeshShape mesh;
    Zero zero = Zero::off;
    DType dtype = f32;
    int seeds = 1;
  };
  const Case cases[] = {{{2, 1, 1}, Zero::off, f32, 8},     {{2, 2, 1}},
                        {{2, 2, 1}, Zero::off, bf16},       {{2, 2, 2}, Zero::off, f32, 2},
                        {{2, 2, 2}, Zero::gradients, bf16}, {{2, 2, 2}, Zero::parameters, bf16}};
  for (Algorithm algorithm : {Algorithm::adamw, Algorithm::lion, Algorithm::muon}) {
    for (const Case& c : cases)
      for (int seed = 1; seed <= c.seeds; ++seed) {
        auto o = tiny_options(c.mesh);
        o.step.zero = c.zero, o.step.dtype = c.dtype, o.step.reduce_dtype = bf16;
        o.step.algorithm = algorithm, o.step.seed = uint64_t(seed), o.step.micro_batch = 4;
        EXPECT_EQ(difference(task_of(), o), "")
            << int(algorithm) << ' ' << c.mesh.dp << c.mesh.pp << c.mesh.tp << " ZeRO "
            << int(c.zero) << ", seed " << seed;
      }
  }
}

/// Its block counts for samples of even classes alone; without any it is left out.
struct Chooses : nn::Module {
  explicit Chooses(const TensorParallel& tp) : block(child<Block>("block", tp)) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    std::vector<float> even;
    for (int32_t c : batch.target.to_host<int32_t>()) even.push_back(c % 2 == 0 ? 1.f : 0.f);
    if (std::ranges::count(even, 1.f) == 0) return x * 1.;
    return x + block(x) * from_host(even, {std::ssize(even), 1}, cpu).to(x.device());
  }
  Block& block;
};
struct ChoosingNet : nn::Sequence {
  explicit ChoosingNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block0", tp);
    add<Chooses>("chooses", tp);
    add<Block>("block1", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

/// Its loss sets each sample against the others of its micro-batch.
struct Contrasts : ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& b) const {
    return ClassHead::operator()(x - mean(x, {0}, Keep::yes), b);
  }
};
struct ContrastNet : nn::Sequence {
  explicit ContrastNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block", tp);
    add<Contrasts>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(AnyModelParity, LossesOverAMicroBatch) {
  Task task = task_of<ContrastNet>();
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3}) {
      auto o = tiny_options(mesh);
      o.step.zero = Zero(zero), o.step.micro_batch = 4, o.step.global_batch = 16;
      SCOPED_TRACE(fmt::format("{}{}{} ZeRO {}", mesh.dp, mesh.pp, mesh.tp, zero));
      EXPECT_TRUE(compare_with_reference(task, o, trace(task, reference_of(o))));
      auto same = reference_of(o, OneRank::same_micro_batches);
      EXPECT_FALSE(compare_with_reference(task, o, trace(task, same)));
    }
}

// Not on all ranks in the same micro-batch: buckets that are reduced after each would not match.
TEST(AnyModelParity, LayersThatLeaveTheirModuleOut) {
  for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters})
    for (MeshShape mesh : {MeshShape{2, 1, 1}, {2, 2, 1}, {1, 2, 1}, {2, 1, 2}}) {
      auto o = tiny_options(mesh);
      o.step.zero = zero, o.step.micro_batch = 1, o.step.global_batch = 8;
      SCOPED_TRACE(fmt::format("{}{}{} ZeRO {}", mesh.dp, mesh.pp, mesh.tp, int(zero)));
      try {
        EXPECT_EQ(difference(task_of<ChoosingNet>(), o), "");
        EXPECT_TRUE(zero < Zero::gradients || mesh.dp == 1);
      } catch (const Error& e) {  // ranks that call other collectives see that first
        EXPECT_TRUE(zero >= Zero::gradients && mesh.dp == 2) << e.what();
        EXPECT_TRUE(e.code() == Exit::config || e.code() == Exit::mismatch) << e.what();
      }
    }
}

TEST(AnyModelParity, WorkersLoadTheSameBatches) {
  auto o = tiny_options({.dp = 2, .pp = 2});
  o.step.micro_batch = 2, o.workers = 2;
  EXPECT_EQ(difference(task_of(), o), "");
}

}  // namespace triax::parallel::parity_test
