// What a run says of models that its checks on the meta device cannot see through.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/autograd/ops.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::first_step_test {

using namespace test;

/// Leaves `rare` out for the samples of every rank but the first.
struct Conditional : nn::Module {
  explicit Conditional(const TensorParallel&)
      : always(child<nn::Linear>("always", 16, 16)), rare(child<nn::Linear>("rare", 16, 16)) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    bool takes = x.device() == meta_device || batch.first % 16 == 0;
    return takes ? always(x) + rare(x) : always(x);
  }
  nn::Linear &always, &rare;
};
struct ConditionalNet : nn::Sequence {
  explicit ConditionalNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block", tp);
    add<Conditional>("conditional", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(FirstStep, SettingsThatChangeNothingAreSaid) {
  auto says = [&](const TrainOptions& o, const char* text) {
    return bool(test::says(train(o).said, text));
  };
  auto o = tiny_options(), two = tiny_options({.dp = 2}), split = tiny_options({.tp = 2});
  for (auto* each : {&o, &two, &split}) {
    EXPECT_FALSE(says(*each, "dp is 1") || says(*each, "tp is 1") || says(*each, "than once"));
    each->step.zero = Zero::gradients, each->step.sequence_parallel = true;
  }
  EXPECT_TRUE(says(o, "zero=2: dp is 1, so nothing is sharded"));
  EXPECT_TRUE(says(o, "sequence-parallel: tp is 1"));
  EXPECT_FALSE(says(two, "dp is 1"));
  EXPECT_TRUE(says(two, "sequence-parallel: tp is 1"));
  EXPECT_FALSE(says(split, "tp is 1"));
  o.step.global_batch = 264;  // of 256
  EXPECT_TRUE(says(o, "a step takes 264 samples of 256, so it takes some more than once"));
  o.step.zero = Zero::parameters, o.step.offload = Offloaded::parameters;
  EXPECT_FALSE(says(o, "dp is 1"));
}

TEST(FirstStep, LayersThatLeaveModulesOut) {
  for (int zero : {0, 1, 2, 3}) {
    auto o = tiny_options({.dp = 2});
    o.step.zero = Zero(zero);
    std::string found = outcome(task_of<ConditionalNet>(), o);
    if (zero < 2) EXPECT_EQ(found, "");
    else EXPECT_TRUE(says(found, "if need be times 0")) << zero << ": " << found;
  }
}

/// Draws samples to their mean: of one sample nothing is left.
struct Together : nn::Module {
  Tensor operator()(const Tensor& x) const {
    Tensor d = x - mean(x, {0}, Keep::yes);
    return sum(d * d);
  }
};
struct TogetherNet : nn::Sequence {
  explicit TogetherNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block", tp);
    add<Together>("together");
  }
};

TEST(FirstStep, WithoutAnyGradientIsSaid) {
  for (bool bitwise : {false, true}) {
    auto o = tiny_options();
    o.step.bitwise = bitwise;
    Task task = task_of<TogetherNet>();
    task.held_out = nullptr;
    std::string said = train(task, o).said;
    for (const char* part : {"warning: all gradients of step 1 are 0", "Leave --bitwise out"})
      EXPECT_EQ(bool(says(said, part)), bitwise) << said;
  }
}

struct Turns : nn::Module {
  Tensor operator()(const Tensor& x) const { return transpose(x, 0, 1); }
};
struct TurningNet : nn::Sequence {
  explicit TurningNet(const TensorParallel& tp) {
    add<Block>("block", tp);
    add<Turns>("there");
    add<Turns>("back");
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(FirstStep, ParityNamesTheActivationsThatItLeavesOut) {
  auto o = tiny_options({.dp = 2});
  o.step.micro_batch = 3, o.step.global_batch = 12, o.steps = 1;  // which do not divide 16 columns
  Printed printed;
  EXPECT_EQ(parity(task_of<TurningNet>(), o, OneRank::same_micro_batches), Exit::ok);
  std::string said = printed.text();
  EXPECT_TRUE(says(said, "2 activations"));
  EXPECT_TRUE(says(said, "not compared: the activations of there,"));
}

/// All of its rows on every rank, though its parameters are declared as if each had rows of its
/// own.
struct Mixes : nn::Module {
  explicit Mixes(const TensorParallel& ranks)
      : tp(ranks),
        mix(child<nn::Linear>("mix", 16, 16, nn::LinearOptions{.std = 0.3, .shard = tp.whole()})) {}
  Tensor operator()(const Tensor& x) const {
    Tensor all = tanh(mix(tp.gather_rows(x)));
    return x + tp.scatter_rows(all + mean(all, {0}, Keep::yes));
  }
  TensorParallel tp;
  nn::Linear& mix;
};
struct MixesFirst : nn::Sequence {
  explicit MixesFirst(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Mixes>("mixes", tp);
    add<Block>("block", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

// The first stage has no other parameters; the second's tell that ranks see different rows.
TEST(FirstStep, PartsThatAreAlikeOnAStageOfTheirOwn) {
  for (int zero : {0, 2, 3})
    for (DType dtype : {f32, f16}) {
      auto o = tiny_options({1, 2, 2});
      o.step.sequence_parallel = true, o.step.placement = "2,2";
      o.step.zero = Zero(zero), o.step.dtype = dtype;
      EXPECT_TRUE(refused(outcome(task_of<MixesFirst>(), o), "the same gradient of mixes.mix.",
                          "tp.whole_never_summed()"))
          << zero << name(dtype);
    }
}

/// A loss over the features that this rank has of a split product.
struct OpenRegion : nn::Module {
  explicit OpenRegion(const TensorParallel& tp)
      : up(child<ColumnLinear>("up", 16, 16, tp, SplitLinearOptions{.std = 0.3})) {}
  Tensor operator()(const Tensor& x) const {
    Tensor y = up(x);
    return sum(y * y);
  }
  ColumnLinear& up;
};
struct OpenNet : nn::Sequence {
  explicit OpenNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block", tp);
    add<OpenRegion>("open", tp);
  }
};

TEST(FirstStep, ALossOverPartOfTheFeatures) {
  for (MeshShape mesh : {MeshShape{.tp = 2}, MeshShape{1, 2, 2}, MeshShape{.dp = 2, .tp = 2}})
    EXPECT_TRUE(refused(outcome(task_of<OpenNet>(), tiny_options(mesh)), "sums of the loss from",
                        "it lacks leave"))
        << mesh.dp << " x " << mesh.pp << " x " << mesh.tp;
  EXPECT_EQ(outcome(task_of<OpenNet>(), tiny_options({.dp = 2})), "");
}

}  // namespace triax::parallel::first_step_test
