// Equal bits where a layer sees several samples of many rows at once.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "parallel/tensor/dropout.h"
#include "tests/parallel/parity/row_nets.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

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
  Task task_ = test::task_of<BlockNet<Matmul::block>>();
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
  auto run = [&] { trace(test::task_of<RowNet<32, Independent<Scaled>>>(), o); };
  test::expect_config_error(
      run, {"mul does not sum the gradient of a weight sample by sample", "Take --micro-batch 1"});
  o.step.bitwise = false;
  EXPECT_NO_THROW(run());
}

/// A block whose result is dropped in part.
struct Dropping : test::Block {
  static constexpr bool independent = true;
  explicit Dropping(const TensorParallel& tp)
      : test::Block(tp), drop(child<Dropout>("drop", 0.3, tp)) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return x + drop(test::Block::operator()(x), batch, rows);
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
    EXPECT_EQ((difference<RowNet<rows, Outside, test::Block>>(o)), "")
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
  auto run = [&] { trace(test::task_of<RowNet<64, Asking>>(), o); };
  test::expect_config_error(run, {"asks for its first row", "3 samples", "parallel::Dropout"});
  o.step.micro_batch = 1;
  EXPECT_NO_THROW(run());
}

}  // namespace
}  // namespace triax::parallel
