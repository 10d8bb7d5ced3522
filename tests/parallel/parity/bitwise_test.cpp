// Equal bits of a model that the library has never seen, on meshes, ZeRO stages and schedules, with
// its first steps long enough for what differs to show.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tests/parallel/parity/row_nets.h"
#include "tests/support/expect_error.h"
#include "triax/autograd/ops.h"
#include "triax/nn/batch_norm.h"
#include "triax/optim/sgd.h"
#include "triax/parallel/tensor/dropout.h"

namespace triax::parallel::bitwise_test {

using namespace test;

TEST(Bitwise, MeshesZeroAndSchedules) {
  const char* schedules[] = {"1f1b", "gpipe", "zb-h1"};
  int number = 0;
  for (int dp : {2, 3, 6})
    for (int pp : {1, 4})
      for (int zero : {0, 1, 2, 3}) {
        auto o = bitwise_options({dp, pp, 1});
        o.step.zero = Zero(zero);
        o.step.schedule = schedules[++number % 3];
        o.step.recompute = number % 2 == 0 ? Recompute::block : Recompute::off;
        EXPECT_EQ(difference(o), "")
            << dp << " " << pp << " ZeRO " << zero << " " << o.step.schedule;
      }
}

/// The reference of parity makes its sums in fixed point too: what they come to is compared with
/// plain ones here.
TEST(Bitwise, TrainsAsWithoutIt) {
  for (int slices : {1, 2, 4}) {
    auto o = bitwise_options({1, 1, 1});
    o.steps = 3, o.step.tp_slices = slices;
    auto plain = o;
    plain.step.bitwise = false, plain.step.tp_slices = 1, plain.step.micro_batch = 24;
    Task task = task_of();
    Trace reference = trace(task, plain), run = trace(task, o, {.states = &reference});
    double rate = o.lr.peak;
    auto d =
        first_difference(reference, run, {1, 1, 1}, {.update = 0.02 * rate, .noise = 2 * rate});
    EXPECT_FALSE(d) << slices << " " << d->what << " of " << d->name << ": " << d->how_much;
  }
}

TEST(Bitwise, PrecisionsOptimizersAndOffload) {
  for (DType dtype : {f32, bf16, f16})
    for (MeshShape mesh : {MeshShape{2, 2, 1}, {3, 1, 1}, {1, 4, 1}}) {
      auto o = bitwise_options(mesh);
      o.step.dtype = dtype, o.step.zero = Zero::gradients;
      EXPECT_EQ(difference(o), "") << name(dtype);
      o.step.average = 0.9, o.step.algorithm = Algorithm::lion;
      EXPECT_EQ(difference(o), "") << name(dtype) << " lion";
      o.step.average = 0, o.step.algorithm = Algorithm::adamw;
      o.step.offload = Offloaded::optimizer;
      EXPECT_EQ(difference(o), "") << name(dtype) << " offload";
      o = bitwise_options(mesh);
      o.step.dtype = dtype, o.step.algorithm = Algorithm::muon, o.step.zero = Zero::optimizer;
      EXPECT_EQ(difference(o), "") << name(dtype) << " muon";
      o.step.optimizer = [](const std::vector<optim::Slot>& slots) {
        return std::make_unique<optim::Sgd>(slots, optim::SgdOptions{.momentum = 0.9});
      };
      EXPECT_EQ(difference(o), "") << name(dtype) << " sgd";
    }
}

/// What one rank and a mesh do within the bounds of parity, and not bit by bit.
TEST(Bitwise, IsMoreThanParity) {
  auto o = bitwise_options({3, 1, 1});
  Task task = task_of();
  Trace reference = trace(task, reference_of(o));
  o.step.bitwise = false;
  Trace run = trace(task, o);
  EXPECT_TRUE(first_difference(reference, run, o.step.mesh, {0, 0, 0, 0, 0}));
  EXPECT_FALSE(compare_with_reference(task, o, reference));
}

/// Four channels of four values.
struct Channels : nn::Module {
  explicit Channels(const TensorParallel&) : norm(child<nn::BatchNorm>("norm", 4, 1)) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return view(norm(view(x, {-1, 4, 4}), batch), x.shape());
  }
  nn::BatchNorm& norm;
};
struct BatchNormNet : nn::Sequence {
  explicit BatchNormNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Channels>("channels", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

/// Ends in a gelu, whose slope the product behind it would apply, and the other use of it not.
struct Curve : nn::Module {
  explicit Curve(const TensorParallel& tp) : up(child<ColumnLinear>("up", 16, 16, tp, Std{0.3})) {}
  Tensor operator()(const Tensor& x) const { return up.gelu(x); }
  using Std = SplitLinearOptions;
  ColumnLinear& up;
};
struct Twice : nn::Module {
  explicit Twice(const TensorParallel&) : by(child<nn::Linear>("by", 16, 16)) {}
  Tensor operator()(const Tensor& x) const { return x + by(x); }
  nn::Linear& by;
};
struct CurveNet : nn::Sequence {
  explicit CurveNet(const TensorParallel& tp) {
    add<Curve>("curve0", tp);
    add<Twice>("twice0", tp);
    add<Curve>("curve1", tp);
    add<Twice>("twice1", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(Bitwise, LayersDoNotSeeWhatMadeTheirInput) {
  for (DType dtype : {f32, bf16}) {
    auto o = bitwise_options({1, 4, 1});
    o.step.dtype = dtype;
    EXPECT_EQ(difference<CurveNet>(o), "") << "stages";
    o = bitwise_options({2, 1, 1});
    o.step.dtype = dtype, o.step.zero = Zero::parameters;
    EXPECT_EQ(difference<CurveNet>(o), "") << "ZeRO-3";
    o.step.zero = Zero::off, o.step.recompute = Recompute::block;
    EXPECT_EQ(difference<CurveNet>(o), "") << "recomputed";
  }
}

struct Large : nn::Module {
  explicit Large(const TensorParallel&) {}
  Tensor operator()(const Tensor& x) const { return x * 1e5; }
};
struct LargeNet : nn::Sequence {
  explicit LargeNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Large>("large", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(Bitwise, AGradientTooLargeForItsSumsIsNoSum) {
  auto o = bitwise_options({2, 1, 1});
  expect_error([&] { trace(task_of<LargeNet>(), o); },
               {"first in head.table of rank",
                "a sample's part of a gradient must be less "
                "than 21.3"},
               Exit::non_finite);
  o.step.bitwise = false;
  EXPECT_NO_THROW(trace(task_of<LargeNet>(), o));
}

struct OftenScaledNet : nn::Sequence {
  explicit OftenScaledNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Scaled>("scaled", tp).times = 9;
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

/// A layer that adds up what ranks have by itself.
struct OwnSum : nn::Module {
  explicit OwnSum(const TensorParallel& ranks) : tp(ranks) {}
  Tensor operator()(const Tensor& x) const { return tp.leave(x * (1. / tp.size())); }
  TensorParallel tp;
};
struct OwnSumNet : nn::Sequence {
  explicit OwnSumNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<OwnSum>("sum", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(Bitwise, WhatIsNotCoveredIsRefused) {
  auto refused = [](const char* said, auto change) {
    auto o = bitwise_options({2, 1, 1});
    change(o);
    expect_config_error([&] { trace(task_of(), o); }, {"bitwise with", said});
  };
  refused("tp=2, tp-slices=1", [](auto& o) { o.step.mesh = {1, 1, 2}; });
  refused("tp=2, tp-slices=3", [](auto& o) { o.step.mesh = {1, 1, 2}, o.step.tp_slices = 3; });
  refused("reduce-dtype=bf16", [](auto& o) { o.step.reduce_dtype = bf16; });
  refused("a loss scale of 1000", [](auto& o) { o.step.dtype = f16, o.step.loss_scale = 1000; });
  auto o = bitwise_options({1, 1, 1});
  o.step.tp_slices = 3;
  expect_config_error([&] { trace(task_of(), o); }, {"3 slices do not divide 32 features",
                                                     "--tp-slices for them: 1, 2, 4, 8, 16, 32."});
  o.step.tp_slices = 2;
  expect_config_error([&] { trace(task_of<OwnSumNet>(), o); },
                      {"bitwise with tp-slices=2: leave sums features"});
  o.step.bitwise = false;
  expect_config_error([&] { trace(task_of(), o); }, {"tp-slices=2 without bitwise"});
  o = bitwise_options({1, 1, 2});
  o.step.sequence_parallel = true, o.step.tp_slices = 2;
  expect_config_error(
      [&] { trace(task_of<RowNet<32, Scaled>>(), o); },
      {"bitwise with sequence-parallel or row-parts: mul does not sum", "x + bias"});
  o.step.tp_slices = 16;  // of four rows a rank
  expect_config_error([&] { trace(task_of<BlockNet<8>>(), o); },
                      {"bitwise with sequence-parallel or row-parts:", "in 8 equal parts"});
  o = bitwise_options({1, 1, 1});
  o.step.micro_batch = 2;
  expect_config_error(
      [&] { trace(task_of<OftenScaledNet>(), o); },
      {"bitwise: parameter scaled.by is used 9 times in a pass; expected at most 8"});
  o = bitwise_options({2, 1, 1});
  expect_config_error([&] { trace(task_of<BatchNormNet>(), o); },
                      {"bitwise with a model that has buffers (channels.norm.", "batch norm"});
}

// Equal bits where a layer sees several samples of many rows at once.

/// One rank and micro-batches of 1, once for each precision, and meshes of any other.
class BitwiseRows : public testing::Test {
 protected:
  static TrainOptions options(DType dtype) {
    auto o = bitwise_options({1, 1, 1});
    o.steps = 2, o.step.tp_slices = 4, o.step.dtype = dtype;
    return o;
  }
  void expect_equal(const TrainOptions& o) {
    if (!references_.contains(o.step.dtype))
      references_[o.step.dtype] = trace(task_, options(o.step.dtype));
    auto d = first_difference(references_[o.step.dtype], trace(task_, o), o.step.mesh,
                              {.loss = 0, .norm = 0, .gradient = 0, .activation = 0, .weight = 0});
    EXPECT_FALSE(d) << d->what << " of " << d->name << " at step " << d->step << ": "
                    << d->how_much;
  }
  Task task_ = task_of<BlockNet<Matmul::block>>();
  std::map<DType, Trace> references_;
};

TEST_F(BitwiseRows, MeshesWithAnyMicroBatchAndSequenceParallel) {
  const char* schedules[] = {"1f1b", "gpipe", "zb-h1"};
  int number = 0;
  for (int dp : {1, 2, 3, 4})
    for (int pp : {1, 2})
      for (int tp : {1, 2, 4})
        for (int zero : {0, 1, 2, 3}) {
          auto o = options(std::array{f32, bf16, f32, f16, f32}[size_t(number % 5)]);
          o.step.mesh = {dp, pp, tp}, o.step.zero = Zero(zero);
          o.step.micro_batch = std::array{1, 2, 3, 6}[size_t(number / 3 % (dp == 3 ? 2 : 4))];
          if (24 % (dp * o.step.micro_batch) != 0) o.step.micro_batch = 2;
          o.step.sequence_parallel = (number + number / 4) % 2 == 0;
          o.step.schedule = schedules[++number % 3];
          o.step.recompute = number / 3 % 2 == 0 ? Recompute::block : Recompute::off;
          SCOPED_TRACE(fmt::format(
              "{}x{}x{} ZeRO {} {} micro-batch {}{} {}", dp, pp, tp, zero, o.step.schedule,
              o.step.micro_batch, o.step.sequence_parallel ? " sequence" : "", name(o.step.dtype)));
          expect_equal(o);
        }
}

/// Slices of 256 features: several are one product, and bias gradients are summed in several
/// pieces.
struct Wide : nn::Module {
  static constexpr bool independent = true;
  explicit Wide(const TensorParallel& tp)
      : up(child<ColumnLinear>("up", 16, 1024, tp, SplitLinearOptions{.std = 0.3})),
        down(child<RowLinear>("down", 1024, 16, tp, SplitLinearOptions{.std = 0.05})) {}
  Tensor operator()(const Tensor& x) const { return down.onto(x, up.gelu(x)); }
  ColumnLinear& up;
  RowLinear& down;
};

TEST(Bitwise, WideSlicesOnAnyMesh) {
  for (MeshShape mesh : {MeshShape{1, 1, 1}, {1, 1, 2}, {2, 1, 4}, {1, 3, 2}})
    for (DType dtype : {f32, bf16}) {
      auto o = bitwise_options(mesh);
      o.steps = 2, o.step.tp_slices = 4, o.step.micro_batch = 4, o.step.dtype = dtype;
      EXPECT_EQ((difference<RowNet<32, Wide>>(o)), "") << name(dtype) << mesh.tp;
    }
}

/// A rank's share of a weight has few rows or columns, and terms more rows than tiles take at once.
TEST(Bitwise, FewFeaturesOfManyRows) {
  for (DType dtype : {f32, bf16}) {
    auto o = bitwise_options({1, 1, 4});
    o.steps = 2, o.step.tp_slices = 4, o.step.dtype = dtype;
    EXPECT_EQ((difference<RowNet<512, Block>>(o)), "") << name(dtype);
  }
}

TEST_F(BitwiseRows, OffloadedWeights) {
  for (int64_t micro : {1, 4})
    for (const std::string& directory : {std::string(), testing::TempDir()}) {
      auto o = options(f32);
      o.step.mesh = {2, 1, 2}, o.step.zero = Zero::parameters, o.step.micro_batch = micro;
      o.step.offload = Offloaded::parameters, o.step.offload_dir = directory;
      o.step.sequence_parallel = micro > 1;
      expect_equal(o);
    }
}

TEST(Bitwise, ProductsWithAWeightAreOfAllRows) {
  auto o = bitwise_options({2, 1, 2});
  o.step.tp_slices = 4, o.step.micro_batch = 3;
  EXPECT_EQ((difference<RowNet<32, Scaled>>(o)), "");
}

TEST(Bitwise, AProductWithAWeightIsNotIndependent) {
  auto o = bitwise_options({2, 1, 1});
  o.step.micro_batch = 3;
  auto run = [&] { trace(task_of<RowNet<32, Independent<Scaled>>>(), o); };
  expect_config_error(
      run, {"mul does not sum the gradient of a weight sample by sample", "Take --micro-batch 1"});
  o.step.bitwise = false;
  EXPECT_NO_THROW(run());
}

/// A block whose result is dropped in part.
struct Dropping : Block {
  static constexpr bool independent = true;
  explicit Dropping(const TensorParallel& tp) : Block(tp), drop(child<Dropout>("drop", 0.3, tp)) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return x + drop(Block::operator()(x), batch, rows);
  }
  static constexpr int64_t rows = 4 * Matmul::block;  // of a sample, over all ranks
  Dropout& drop;
};

/// Ranks have a share of each sample's rows that is large enough to see all samples at once.
TEST(Bitwise, SequenceParallelWithSamplesAtOnce) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{1, 1, 2}, {1, 1, 4}, {2, 1, 2}, {2, 2, 2}, {1, 4, 4}})
    for (DType dtype : {f32, bf16, f16, f32}) {
      auto o = bitwise_options(mesh);
      o.steps = 2, o.step.tp_slices = 4, o.step.dtype = dtype;
      o.step.sequence_parallel = true;
      o.step.micro_batch = std::array{3, 4, 6}[size_t(number % 3)];
      o.step.zero = Zero(number % 4 == 3 ? 3 : number / 4 % 3);
      o.step.recompute = number / 2 % 2 == 0 ? Recompute::block : Recompute::off;
      o.step.schedule = std::array{"1f1b", "zb-h1", "gpipe"}[size_t(number / 3 % 3)];
      if (number % 8 == 7) o.step.offload = Offloaded::parameters;
      SCOPED_TRACE(fmt::format("{}x{}x{} ZeRO {} {} micro-batch {} {}", mesh.dp, mesh.pp, mesh.tp,
                               int(o.step.zero), o.step.schedule, o.step.micro_batch, name(dtype)));
      EXPECT_EQ((difference<RowNet<Dropping::rows, Dropping, Dropping>>(o)), "");
      ++number;
    }
}

/// Kernels have ways of their own for one row and, of f32 with AMX, for fewer than 16.
template <int64_t rows> void expect_equal_shares(DType dtype) {
  for (int tp : {2, 4}) {
    auto o = bitwise_options({1, 1, tp});
    o.steps = 2, o.step.tp_slices = 4, o.step.dtype = dtype, o.step.micro_batch = 4 / tp;
    o.step.sequence_parallel = true;
    if (tp == 2) o.step.recompute = Recompute::block;
    else o.step.groups = "layer0.*:frozen";
    EXPECT_EQ((difference<RowNet<rows, Outside, Block>>(o)), "")
        << rows << " rows, tp " << tp << ' ' << name(dtype);
  }
}

TEST(Bitwise, SharesOfFewRowsOutsideOfSplitLayers) {
  for (DType dtype : {f32, bf16, f16}) {
    expect_equal_shares<4>(dtype);
    expect_equal_shares<32>(dtype);
  }
  expect_equal_shares<8>(f32);
  expect_equal_shares<128>(f32);
}

/// Asks for its first row, as a mask would.
struct Asking : nn::Module {
  static constexpr bool independent = true;
  explicit Asking(const TensorParallel& ranks) : tp(ranks) {}
  Tensor operator()(const Tensor& x) const { return x * double(1 + tp.first_row(x.size(0))); }
  TensorParallel tp;
};

TEST(Bitwise, SamplesApartHaveNoFirstRow) {
  auto o = bitwise_options({1, 1, 2});
  o.step.tp_slices = 2, o.step.micro_batch = 3, o.step.sequence_parallel = true;
  auto run = [&] { trace(task_of<RowNet<64, Asking>>(), o); };
  expect_config_error(run, {"asks for its first row", "3 samples", "parallel::Dropout"});
  o.step.micro_batch = 1;
  EXPECT_NO_THROW(run());
}

}  // namespace triax::parallel::bitwise_test
