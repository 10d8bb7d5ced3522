// What may not train a wrong model in silence: each mistake is refused, with its text.
#include <gtest/gtest.h>

#include "parallel/parity/parity.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using test::outcome;
using test::task_of;
using test::tiny_options;

/// Is `outcome` Error 78 with a text that holds both parts?
testing::AssertionResult refused(const std::string& outcome, const std::string& a,
                                 const std::string& b) {
  bool right = outcome.starts_with("78: ") && outcome.find(a) != outcome.npos &&
               outcome.find(b) != outcome.npos;
  return (right ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "`" << outcome << "`; expected 78 with `" << a << "` and `" << b << "`";
}

/// A norm or head in place of the right ones.
template <class Norm, class Head> struct Net : nn::Sequence {
  explicit Net(const TensorParallel& tp) {
    add<test::Rows>("rows", tp);
    if constexpr (std::is_constructible_v<Norm, int64_t, const TensorParallel&>)
      add<Norm>("norm", 16, tp);
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

TEST(Guards, RanksThatWereToldDifferentThings) {
  auto dp = tiny_options({.dp = 2});
  auto seed = [](auto& o, int rank) { o.step.seed = 1 + rank; };
  EXPECT_TRUE(refused(outcome(task_of(), dp, seed), "rank 0: seed = 1", "rank 1: seed = 2"));
  auto micro = [](auto& o, int rank) { o.step.micro_batch = rank ? 4 : 8; };
  EXPECT_TRUE(refused(outcome(task_of(), dp, micro), "micro-batch = 8", "micro-batch = 4"));
  auto dtype = [](auto& o, int rank) { o.step.dtype = rank ? bf16 : f32; };
  EXPECT_TRUE(refused(outcome(task_of(), dp, dtype), "\"fp32\"", "rank 1: precision = \"bf16\""));
}

/// Every rank brings a task of its own.
std::string outcome_of_tasks(const std::function<Task(int rank)>& task) {
  try {
    run_worlds(2, [&](World& world) {
      Task mine = task(world.rank());
      Trainer trainer(mine, tiny_options({.dp = 2}), world);
      trainer.step();
    });
    return "";
  } catch (const Error& e) {
    return fmt::format("{}: {}", int(e.code()), e.what());
  }
}

TEST(Guards, RanksWithOtherModelsOrData) {
  EXPECT_TRUE(
      refused(outcome_of_tasks([](int rank) { return rank ? task_of<Right>() : task_of(); }),
              "ranks disagree", "rank 1: "));
  auto other_samples = [](int rank) {
    Task task = task_of();
    if (rank == 1) task.samples = test::noise(256, 9);
    return task;
  };
  EXPECT_TRUE(refused(outcome_of_tasks(other_samples), "samples = " + test::noise()->identity(),
                      test::noise(256, 9)->identity()));
  auto other_held_out = [](int rank) {
    Task task = task_of();
    if (rank == 1) task.held_out = nullptr;
    return task;
  };
  EXPECT_TRUE(refused(outcome_of_tasks(other_held_out), "held-out samples = input [50, 16]",
                      "held-out samples = none"));
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
  EXPECT_TRUE(refused(outcome(task_of<Stranger>(), tiny_options()),
                      "parameter norm.gamma: no layer of the model uses it", "add()"));
}

TEST(Guards, LayersThatNoGradientReaches) {
  EXPECT_TRUE(refused(outcome(task_of<Net<Detaches, ClassHead>>(), tiny_options()),
                      "parameter norm.norm.gamma: no gradient reaches it", "returns"));
  EXPECT_TRUE(refused(outcome(task_of<Net<RmsNorm, Logits>>(), tiny_options()),
                      "its last layer, head, returns", "sum of the loss"));
}

TEST(Guards, LayersThatCutOffThoseBefore) {
  auto detach = [](auto&, auto& x, auto&) { return x.detach(); };
  EXPECT_EQ(outcome_of(Mixed::input, Mixed::same), "");
  for (const Mixed::Run& middle : {Mixed::Run(detach), Mixed::Run(Mixed::input)})
    EXPECT_TRUE(refused(outcome_of(Mixed::input, middle), "layer middle of [8, 16]",
                        "no gradient reaches its input"));
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

}  // namespace
}  // namespace triax::parallel
