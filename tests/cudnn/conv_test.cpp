#include <set>

#include "tests/cudnn/gpus.h"
#include "tests/support/windows.h"
#include "triax/core/cuda/libraries/cudnn_conv.h"

// What cuDNN says to the graphs of core/cuda/libraries/cudnn_conv.cpp, without a GPU.

namespace triax::test {
namespace {

using namespace cuda::dnn;
using Pass = Convolution::Pass;

constexpr Pass passes[] = {Pass::forward, Pass::input_gradient, Pass::weight_gradient};

/// ResNet-18's on CIFAR-10, then groups, one channel in each, and dilation.
std::vector<ConvCase> layers() {
  WindowAxis one{0, 1, 2}, three{0, 3, 1, 1}, strided{0, 3, 2, 1}, apart{0, 3, 1, 2, 2};
  std::vector<ConvCase> all{{{128, 32, 32, 3}, 64, three, three}};
  for (int64_t channels : {64, 128, 256, 512}) {
    int64_t size = 2048 / channels;
    all.push_back({{128, size, size, channels}, channels, three, three});
    if (channels == 512) break;
    all.push_back({{128, size, size, channels}, 2 * channels, strided, strided});
    all.push_back({{128, size, size, channels}, 2 * channels, one, one});
  }
  all.push_back({{8, 16, 16, 64}, 64, three, three, 4});
  all.push_back({{8, 16, 16, 64}, 64, three, three, 64});
  all.push_back({{8, 16, 16, 32}, 64, apart, apart});
  return all;
}

ConvolutionShape shape_of(const ConvCase& c, DType dtype, Pass pass) {
  Device meta{Device::Kind::meta};
  return cuda::dnn::shape_of(
      {empty(c.x(), dtype, meta), empty(c.weight(), dtype, meta), c.windows(), c.groups}, pass);
}

/// f(shape) for all of `cases` that are not empty.
template <class F> void each_shape(const std::vector<ConvCase>& cases, F f) {
  for (const ConvCase& c : cases)
    for (DType dtype : {f32, f16, bf16})
      for (Pass pass : passes) {
        if (c.images == 0) continue;
        SCOPED_TRACE(str(c.x()) + " with " + str(c.weight()) + ", " + name(dtype) + ", pass " +
                     std::to_string(int(pass)));
        f(shape_of(c, dtype, pass));
      }
}

class CudnnConvolution : public OnAbsentGpu {};

// All but the gradients of f16 and bf16 weights are compiled already and need no driver. Of those,
// what is_supported() says is accepted, and ResNet's that it leaves to triax's own convolution are
// refused.
TEST_P(CudnnConvolution, IsPlannedOrRefused) {
  Descriptor gpu = read_gpu(GetParam());
  int planned = 0, accepted = 0, refused = 0;
  auto ask = [&](const ConvolutionShape& shape) {
    bool compiled_already = shape.pass != Pass::weight_gradient || shape.type == CUDNN_DATA_FLOAT;
    std::string refusal;
    if (compiled_already) {
      EXPECT_TRUE(Plan::make(convolution(shape), gpu, refusal)) << refusal;
      ++planned;
      return;
    }
    bool accepts = !convolution(shape).engines(gpu, refusal).empty();
    EXPECT_TRUE(accepts || !is_supported(shape)) << refusal;
    EXPECT_EQ(refusal.empty(), accepts);
    ++(accepts ? accepted : refused);
  };
  each_shape(layers(), ask);
  EXPECT_EQ(planned, 14 * 7);
  EXPECT_EQ(accepted, 11 * 2);
  EXPECT_EQ(refused, 3 * 2);  // three channels, and groups twice
  WindowAxis three{0, 3, 1, 1};
  for (DType dtype : {f16, bf16})
    for (auto [in, out, is] :
         {std::tuple{8, 8, true}, {16, 24, true}, {2, 8, false}, {8, 4, false}}) {
      ConvCase c{{2, 8, 8, in}, out, three, three};
      EXPECT_EQ(is_supported(shape_of(c, dtype, Pass::weight_gradient)), is) << in << ", " << out;
      EXPECT_TRUE(is_supported(shape_of(c, dtype, Pass::forward)));
    }
  each_shape(conv_cases(), ask);
}

class CudnnCompiledConvolution : public OnAbsentGpu {};

TEST_P(CudnnCompiledConvolution, IsPlanned) {
  make_plan(convolution(shape_of(layers()[1], bf16, Pass::weight_gradient)), read_gpu(GetParam()));
}

/// What the library notes about any engine that a plan for `shape` may take.
std::set<cudnnBackendNumericalNote_t> all_notes(const ConvolutionShape& shape,
                                                const Descriptor& gpu) {
  std::set<cudnnBackendNumericalNote_t> all;
  std::string refusal;
  auto graph = convolution(shape);
  for (const Descriptor& engine : graph.engines(gpu, refusal))
    for (auto note : notes_of(engine)) all.insert(note);
  return all;
}

// No TF32, no sums in f16, and no atomics unless they are allowed.
TEST_P(CudnnConvolution, EnginesKeepPrecisionAndBits) {
  Descriptor gpu = read_gpu(GetParam());
  std::set<cudnnBackendNumericalNote_t> f32_notes, half_notes, fast;
  each_shape(layers(), [&](ConvolutionShape shape) {
    if (shape.x[0] > 8 && shape.x[1] != 64) return;  // to save time
    (shape.type == CUDNN_DATA_FLOAT ? f32_notes : half_notes).merge(all_notes(shape, gpu));
    shape.deterministic = false;
    if (shape.pass == Pass::input_gradient) fast.merge(all_notes(shape, gpu));
  });
  std::set exact{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP};
  EXPECT_EQ(f32_notes, exact);
  exact.insert(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  EXPECT_EQ(half_notes, exact);
  exact.insert(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  EXPECT_EQ(fast, exact);
}

INSTANTIATE_TEST_SUITE_P(, CudnnConvolution, testing::Values("h200", "a100"),
                         [](const auto& gpu) { return std::string(gpu.param); });

// An A100 has so many engines for it that all of them take a minute.
INSTANTIATE_TEST_SUITE_P(, CudnnCompiledConvolution, testing::Values("h200"),
                         [](const auto& gpu) { return std::string(gpu.param); });

}  // namespace
}  // namespace triax::test
