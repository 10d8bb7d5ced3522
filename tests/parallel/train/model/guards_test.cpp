// What may not train a wrong model in silence: each mistake is refused, with its text.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/io/files.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::guards_test {

using namespace test;

/// A norm or head in place of the right ones.
template <class Norm, class Head> struct Net : nn::Sequence {
  explicit Net(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    if constexpr (std::is_constructible_v<Norm, int64_t, const TensorParallel&>)
      add<Norm>("norm", 16, tp);
    else if constexpr (std::is_default_constructible_v<Norm>) add<Norm>("norm");
    else add<Norm>("norm", 16);
    add<Head>("head", 4, 16, tp);
  }
};
using Right = Net<RmsNorm, ClassHead>;

struct MeanHead : ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& b) const {
    return cross_entropy(logits(x), b.target);  // the mean, where the sum is expected
  }
};
struct Logits : ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x) const { return whole(logits(x)); }
};
struct Detaches : nn::Module {
  Detaches(int64_t width, const TensorParallel& tp) : norm(child<RmsNorm>("norm", width, tp)) {}
  Tensor operator()(const Tensor& x) const { return norm(x).detach() + x; }
  RmsNorm& norm;
};
struct Stranger : nn::Sequence {  // its norm is a child, but no layer
  explicit Stranger(const TensorParallel& tp) : norm(child<RmsNorm>("norm", 16, tp)) {
    add<ClassHead>("head", 4, 16, tp);
  }
  RmsNorm& norm;
};
struct CutsHeads : nn::Module {  // 3 heads of 16 features
  explicit CutsHeads(const TensorParallel& tp)
      : up(child<ColumnLinear>("up", 16, 48, tp, SplitLinearOptions{.unit = 16})),
        down(child<RowLinear>("down", 48, 16, tp, SplitLinearOptions{.unit = 16})) {}
  Tensor operator()(const Tensor& x) const { return down(up(x)); }
  ColumnLinear& up;
  RowLinear& down;
};
struct Heads : nn::Sequence {
  explicit Heads(const TensorParallel& tp) {
    add<CutsHeads>("attention", tp);
    add<ClassHead>("head", 4, 16, tp);
  }
};

/// A norm, with a function before and after it.
struct Mixed : nn::Sequence {
  using Run = std::function<Tensor(const Mixed&, const Tensor&, const nn::Batch&)>;
  Mixed(const TensorParallel& tp, const Run& first, const Run& middle)
      : norm(child<RmsNorm>("norm", 16, tp)) {
    for (auto& [name, uses, run] : std::vector<std::tuple<std::string, bool, Run>>{
             {"first", false, first}, {"norm", true, normed}, {"middle", false, middle}})
      add(name, uses ? std::vector<nn::Module*>{&norm} : std::vector<nn::Module*>{},
          [this, run = run](auto& x, auto& batch) { return run(*this, x, batch); });
    add<ClassHead>("head", 4, 16, tp);
  }
  static Tensor input(const Mixed&, const Tensor&, const nn::Batch& b) { return b.input; }
  static Tensor same(const Mixed&, const Tensor& x, const nn::Batch&) { return x; }
  static Tensor normed(const Mixed& m, const Tensor& x, const nn::Batch&) { return m.norm(x); }
  RmsNorm& norm;
};

/// What comes of training such a model.
std::string outcome_of(const Mixed::Run& first, const Mixed::Run& middle,
                       const TrainOptions& o = tiny_options()) {
  Task task = task_of();
  task.build = [&](auto& tp) { return std::make_unique<Mixed>(tp, first, middle); };
  return outcome(task, o);
}

TrainOptions sequence_parallel() {
  auto o = tiny_options({.tp = 2});
  o.step.sequence_parallel = true;
  return o;
}

TEST(Guards, TheRightModelTrains) { EXPECT_EQ(outcome(task_of<Right>(), sequence_parallel()), ""); }

TEST(Guards, NormThatDoesNotSayWhatRanksHold) {
  EXPECT_TRUE(refused(outcome(task_of<Net<nn::RmsNorm, ClassHead>>(), sequence_parallel()),
                      "parameter norm.gamma: all 2 tensor-parallel ranks hold the whole",
                      ".shard = tp.whole()"));
}

struct AlikeNorm : nn::Module {
  AlikeNorm(int64_t width, const TensorParallel& tp)
      : norm(child<nn::RmsNorm>("norm", width, nn::NormOptions{.shard = tp.whole_never_summed()})) {
  }
  Tensor operator()(const Tensor& x) const { return norm(x); }
  nn::RmsNorm& norm;
};

TEST(Guards, WholeParametersAlikeOfRowsThatAreNot) {
  EXPECT_EQ(outcome(task_of<Net<AlikeNorm, ClassHead>>(), tiny_options({.tp = 2})), "");
  EXPECT_TRUE(refused(outcome(task_of<Net<AlikeNorm, ClassHead>>(), sequence_parallel()),
                      "the gradient of norm.norm.gamma differs", "there it is tp.whole()"));
}

/// Lacks one end of a stretch that ranks split, or uses a whole parameter inside of it.
template <int mistake> struct Open : nn::Module {
  explicit Open(const TensorParallel& ranks)
      : tp(ranks),
        norm(child<LayerNorm>("norm", 16, ranks)),
        up(parameter({"up", {32, 16}, {.std = 0.3}, tp.shard(0, 32)})),
        down(parameter({"down", {16, 32}, {.std = 0.3}, tp.shard(1, 32)})),
        scale(parameter({"scale", {1}, {.mean = 1}, tp.whole()})) {}
  Tensor operator()(const Tensor& x) const {
    Tensor in = mistake == 1 ? norm(x) : tp.enter(norm(x));
    Tensor h = relu(linear(in, up.value, {}));
    if (mistake == 2) h = h * scale.value;
    Tensor out = linear(h, down.value, {});
    if (mistake != 3) out = tp.leave(out);
    return x + (mistake == 2 ? out : out * scale.value);
  }
  TensorParallel tp;
  LayerNorm& norm;
  nn::Parameter &up, &down, &scale;
};
template <int mistake> struct OpenNet : nn::Sequence {
  explicit OpenNet(const TensorParallel& tp) {
    add<Open<mistake>>("open", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(Guards, SplitStretchesThatAreNotClosed) {
  auto tp = tiny_options({.tp = 2});
  EXPECT_EQ(outcome(task_of<OpenNet<0>>(), tp), "");
  EXPECT_TRUE(refused(outcome(task_of<OpenNet<1>>(), tp), "the gradient of open.norm.", "enter"));
  EXPECT_TRUE(refused(outcome(task_of<OpenNet<2>>(), tp), "the gradient of open.scale",
                      "only a part: then its .shard is tp.whole_always_summed()"));
  EXPECT_TRUE(refused(outcome(task_of<OpenNet<3>>(), tp), "the gradient of open.", "leave"));
}

TEST(Guards, SplitStretchesThatAreNotClosedAfterStepsThatOverflow) {
  auto o = tiny_options({.tp = 2});
  o.step.dtype = f16, o.step.dynamic_scale.initial = 0x1p24;
  o.steps = 30;
  Printed printed;
  auto run = [&](World& world) { Trainer(task_of<OpenNet<1>>(), o, world).run(); };
  expect_config_error([&] { run_worlds(2, run); }, {"the gradient of open.norm.", "enter"});
  EXPECT_TRUE(says(printed.text(), "overflow"));
}

/// Samples of 4 TB, which take no memory as long as nobody copies them.
struct Huge : nn::TensorSamples {
  Huge() : nn::TensorSamples(zeros({4, 16}, f32, cpu), zeros({4}, i32, cpu)) {}
  nn::Batch batch(std::span<const int64_t> indices) const override {
    nn::Batch small = nn::TensorSamples::batch(indices);
    small.input = zeros({1, 1}, f32, cpu).expand({std::ssize(indices), int64_t{1} << 40});
    return small;
  }
};

TEST(Guards, MicroBatchesThatNoMemoryHolds) {
  Task task = task_of<Right>();
  task.samples = std::make_shared<Huge>(), task.held_out = nullptr;
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "batch: 8 samples at once take 70.4 TB",
                      "--micro-batch", 71));
}

TEST(Guards, SlicesThatCutAHead) {
  EXPECT_EQ(outcome(task_of<Heads>(), tiny_options({.tp = 3})), "");
  EXPECT_TRUE(refused(outcome(task_of<Heads>(), tiny_options({.tp = 2})), "tp=2 does not divide 3",
                      "Valid tp for them: 1, 3"));
}

TEST(Guards, StagesWithoutLayersAndParametersOfNoLayer) {
  EXPECT_TRUE(refused(outcome(task_of<Right>(), tiny_options({.pp = 4})),
                      "pp=4 x chunks=1 = 4 virtual stages of a model of 3 layers", "1 to 3"));
  auto placed = tiny_options({.pp = 2});
  placed.step.placement = "0,3";
  EXPECT_TRUE(refused(outcome(task_of<Right>(), placed), "first stage", "layers"));
  placed.step.placement = "3,0";
  EXPECT_TRUE(refused(outcome(task_of<Right>(), placed), "last stage", "layers"));
  EXPECT_TRUE(refused(outcome(task_of<Stranger>(), tiny_options()),
                      "parameter norm.gamma: no layer of the model uses it", "add()"));
}

TEST(Guards, LayersThatNoGradientReaches) {
  EXPECT_TRUE(refused(outcome(task_of<Net<Detaches, ClassHead>>(), tiny_options()),
                      "parameter norm.norm.gamma: no gradient reaches it", "returns"));
  EXPECT_TRUE(refused(outcome(task_of<Net<RmsNorm, Logits>>(), tiny_options()),
                      "its last layer, head, returns", "sum of the loss"));
}

TEST(Guards, WhatLayersAndBuildThrowSaysWhere) {
  struct Breaks : nn::Module {
    Tensor operator()(const Tensor& x) const {
      if (x.device() != meta_device) throw std::runtime_error("my layer broke");
      return x;
    }
  };
  EXPECT_EQ(outcome(task_of<Net<Breaks, ClassHead>>(), tiny_options()),
            "70: layer norm: my layer broke");
  struct BreaksAtOnce : nn::Module {
    Tensor operator()(const Tensor&) const { throw std::runtime_error("my layer broke"); }
  };
  EXPECT_EQ(outcome(task_of<Net<BreaksAtOnce, ClassHead>>(), tiny_options()),
            "70: layer norm: my layer broke");
  Task task = task_of();
  task.build = [](auto&) -> std::unique_ptr<nn::Sequence> { throw std::runtime_error("broke"); };
  EXPECT_EQ(outcome(task, tiny_options()), "70: build: broke");
  struct Unknown : nn::TensorSamples {
    using TensorSamples::TensorSamples;
    std::string identity() const override { throw std::runtime_error("broke"); }
  };
  task = task_of();
  task.held_out = std::make_shared<Unknown>(zeros({4, 16}, f32, cpu), zeros({4}, i32, cpu));
  EXPECT_EQ(outcome(task, tiny_options()), "70: samples: identity: broke");
}

TEST(Guards, LayersThatCutOffThoseBefore) {
  auto detach = [](auto&, auto& x, auto&) { return x.detach(); };
  EXPECT_EQ(outcome_of(Mixed::input, Mixed::same), "");
  for (const Mixed::Run& middle : {Mixed::Run(detach), Mixed::Run(Mixed::input)})
    EXPECT_TRUE(refused(outcome_of(Mixed::input, middle), "layer middle of [8, 16]",
                        "no gradient reaches its input"));
}

// For a later layer, which then sees another micro-batch's; not a constant, made at the first call.
TEST(Guards, LayersThatKeepTensors) {
  auto kept = std::make_shared<Tensor>();
  auto keeps = [&](auto made) {
    *kept = {};
    return outcome_of(Mixed::input, [&, made](auto&, auto& x, auto& batch) {
      made(x, batch);
      return x + *kept;
    });
  };
  auto result = keeps([&](auto& x, auto&) { *kept = x.detach() * x.detach(); });
  EXPECT_TRUE(refused(result, "layer middle of [8, 16]", "it keeps 512 bytes that this"));
  result = keeps([&](auto& x, auto&) { *kept = x.detach(); });
  EXPECT_TRUE(refused(result, "it keeps 512 bytes", "as further columns of x"));
  result = keeps([&](auto&, auto& batch) { *kept = batch.input; });
  EXPECT_TRUE(refused(result, "it keeps 512 bytes", "a constant once"));
  result = keeps([&](auto& x, auto&) {
    if (!kept->defined() || kept->device() != x.device()) *kept = full({16}, 0.5, f32, x.device());
  });
  EXPECT_EQ(result, "");
  for (bool bitwise : {false, true}) {  // the function's own, made for each sample if bitwise
    auto o = tiny_options();
    o.step.bitwise = bitwise, o.step.micro_batch = 4;
    auto add_mask = [mask = Tensor()](auto&, auto& x, auto&) mutable {
      if (!mask.defined() || mask.device() != x.device() || mask.size(0) != x.size(0))
        mask = full(x.shape(), 0.5, f32, x.device());
      return x + mask;
    };
    EXPECT_EQ(outcome_of(Mixed::input, add_mask, o), "") << bitwise;
  }
}

/// A layer whose parameter is behind an op that returns no gradient.
struct Cut : nn::Sequence {
  explicit Cut(const TensorParallel& tp) {
    auto& norm = child<RmsNorm>("norm", 16, tp);
    add("cut", {&norm}, [&norm](const Tensor& x) {
      Tensor y = norm(x);
      return x + record("nothing", y.detach(), {y}, [](auto&) { return Tensors{Tensor()}; });
    });
    add<ClassHead>("head", 4, 16, tp);
  }
};

TEST(Guards, RulesThatReturnNoGradient) {
  EXPECT_TRUE(refused(outcome(task_of<Cut>(), tiny_options()),
                      "parameter norm.gamma: no gradient reaches it", "what it returns"));
}

TEST(Guards, LayersThatReturnNothing) {
  EXPECT_TRUE(refused(outcome_of(Mixed::input, [](auto&, auto&, auto&) { return Tensor(); }),
                      "layer middle of [8, 16]", "it returns no tensor"));
}

TEST(Guards, LayersThatReturnIntegers) {
  auto classes = [](auto&, auto&, auto& batch) { return batch.target; };
  EXPECT_TRUE(refused(outcome_of(classes, Mixed::same), "layer first: it returns [8] i32",
                      "expected a floating-point activation"));
}

TEST(Guards, ModulesThatUsesLacks) {
  EXPECT_TRUE(refused(outcome_of(Mixed::input, Mixed::normed),
                      "layer middle of [8, 16] f32 on meta: it uses parameter norm.gamma",
                      "add(\"middle\", {...}, ...)"));
}

TEST(Guards, SequenceParallelWithAllRowsOnEveryRank) {
  auto rows = sequence_parallel();
  EXPECT_TRUE(
      refused(outcome_of(Mixed::input, Mixed::same, rows),
              "layer norm of [8, 16] f32 on meta: sequence-parallel, and each of the 2 ranks",
              "tp.scatter_rows(x)"));
  EXPECT_EQ(outcome_of(Mixed::input, Mixed::same, tiny_options({.tp = 2})), "");
}

// The mean in place of the sum: every replica would divide by its own micro-batch, then by the
// whole. The reference of parity runs it in one micro-batch.
TEST(Guards, ParityFindsAMeanInPlaceOfASum) {
  auto o = tiny_options({.dp = 2});
  o.steps = 1;
  auto task = task_of<Net<RmsNorm, MeanHead>>();
  EXPECT_TRUE(compare_with_reference(task, o, trace(task, reference_of(o))));
}

// Nobody can update weights, or forget to publish them: all that a trainer shows is const.
template <class S>
concept can_begin = requires(S& s) {
  s.replica().data().begin(1);
};
template <class S>
concept can_publish = requires(S& s) {
  s.replica().data().publish();
};
template <class S>
concept can_take = requires(S& s) {
  s.take(StepInput{});
};
using Shown = decltype(std::declval<Trainer&>().update());
static_assert(!can_begin<Shown> && !can_publish<Shown> && !can_take<Shown>);

}  // namespace triax::parallel::guards_test
