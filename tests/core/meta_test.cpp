#include "triax/core/meta/meta.h"

#include <gtest/gtest.h>

#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/core/shared/conv.h"

namespace triax {
namespace {

TEST(Meta, HasShapesWithoutBytes) {
  auto outer = memory::counter();
  memory::set_counter(std::make_shared<memory::Counter>());
  {
    Tensor large = zeros({1000, 1000, 1000, 1000}, f32, meta_device);  // 4 TB
    EXPECT_EQ(memory::counter()->live(), 4'000'000'000'000);
    EXPECT_EQ(str(large), "[1000, 1000, 1000, 1000] f32 on meta");
  }
  EXPECT_EQ(memory::counter()->live(), 0);
  memory::set_counter(outer);
  Tensor five = full({3}, 5, f32, cpu).to(meta_device);
  EXPECT_EQ(five.to_host<float>(), std::vector<float>(3, 0.f)) << "values are zero";
  EXPECT_EQ(full({}, 5, f64, meta_device).item(), 0);
}

TEST(Meta, CountsProductsForwardAndBackward) {
  Tensor x = zeros({30, 20}, f32, meta_device), w = zeros({20, 10}, f32, meta_device);
  require_grad(x), require_grad(w);
  meta_work() = {};
  Tensor y = sum(matmul(x, w), {0, 1});
  EXPECT_EQ(meta_work().products, 2. * 30 * 20 * 10);
  backward(y);
  EXPECT_EQ(meta_work().products, 3 * 2. * 30 * 20 * 10);
  EXPECT_GT(meta_work().bytes, 4 * (30 * 10 + 1));
  EXPECT_EQ(grad(x).shape(), x.shape());
}

// x + down(gelu(up(x))). In 16 bits a GPU's product writes gelu's input besides and reads it once
// for the slope; in 32 bits gelu and its slope are kernels. The residual is read once in both.
TEST(Meta, CountsWhatAnUpdateMoves) {
  auto bytes = [](DType dtype, const UpdateRule& rule, int states) {
    Tensor w = empty({8}, dtype, meta_device), g = empty({8}, f32, meta_device);
    OptimizerSlot slot{
        .weight = w, .grad = g, .master = dtype == f32 ? Tensor() : g, .decayed = {}};
    double before = meta_work().bytes;
    backend(w).update(slot, Tensors(size_t(states), g), rule, {});
    return meta_work().bytes - before;
  };
  EXPECT_EQ(bytes(f32, AdamWRule{}, 2), 8 * 28);
  EXPECT_EQ(bytes(bf16, AdamWRule{}, 2), 8 * 32);
  EXPECT_EQ(bytes(f32, LionRule{}, 1), 8 * 20);
  EXPECT_EQ(bytes(f32, SgdRule{}, 0), 8 * 12);
}

TEST(Meta, CountsWhatProductsOfGpusDoInPlaceOfKernels) {
  for (DType dtype : {bf16, f32}) {
    bool kernels = dtype == f32;
    double narrow = 30. * 20 * double(size_of(dtype)), wide = 4 * narrow;
    Tensor x = zeros({30, 20}, dtype, meta_device), up = zeros({80, 20}, dtype, meta_device),
           down = zeros({20, 80}, dtype, meta_device);
    for (Tensor* t : {&x, &up, &down}) require_grad(*t);
    auto work = [start = meta_work()]() mutable {
      KernelWork since = meta_work() - start;
      start = meta_work();
      return since;
    };
    Tensor h = linear_gelu(x, up, zeros({80}, dtype, meta_device));
    KernelWork gelu = work(), there = gelu.on_gpu();
    EXPECT_EQ(there.bytes - gelu.bytes, kernels ? 2 * wide : wide) << name(dtype);
    EXPECT_EQ(there.kernels - gelu.kernels, kernels);
    Tensor y = linear_onto(x, h, down);
    KernelWork residual = work();
    EXPECT_EQ(residual.bytes, 3 * narrow) << "two read, one written";
    EXPECT_EQ(residual.on_gpu().bytes, narrow);
    EXPECT_EQ(residual.on_gpu().kernels, 0);
    backward(y, zeros(y.shape(), dtype, meta_device));
    KernelWork back = work();
    EXPECT_EQ(back.fused_bytes, kernels ? 0 : 2 * wide) << "of three that the slope would move";
    EXPECT_EQ(back.fused_kernels, !kernels);
  }
}

int64_t peak_of_convolution(const Conv2d& like, Device device) {
  auto outer = memory::counter();
  auto counter = std::make_shared<memory::Counter>();
  memory::set_counter(counter);
  {
    int64_t out = like.weight.size(0), high = like.windows.high.count();
    Conv2d c = like;
    c.x = zeros(like.x.shape(), f32, device), c.weight = zeros(like.weight.shape(), f32, device);
    Tensor y = zeros({c.x.size(0), high, like.windows.wide.count(), out}, f32, device);
    backend(device).conv2d(c, y);
    backend(device).conv2d_backward_input(c, y, zeros(c.x.shape(), f32, device));
    backend(device).conv2d_backward_weight(c, y, zeros(c.weight.shape(), f32, device), Write::set);
  }
  memory::set_counter(outer);
  return counter->peak();
}

// By patches and by tiles.
TEST(Meta, HoldsTheWorkingMemoryOfConvolutions) {
  for (int64_t channels : {3, 32, 64})
    for (int64_t padding : {0, 1, 2}) {
      WindowAxis axis{.size = 12, .window = 3, .padding = padding};
      Conv2d c{zeros({4, 12, 12, channels}, f32, meta_device),
               zeros({channels, 3, 3, channels}, f32, meta_device),
               {axis, axis}};
      int64_t foreseen = peak_of_convolution(c, meta_device), held = peak_of_convolution(c, cpu);
      EXPECT_GE(foreseen, held) << channels << " channels, padding " << padding;
      EXPECT_LE(double(foreseen), 1.08 * double(held)) << channels << ", " << padding;
    }
}

// CPUs alone compute by tiles.
TEST(Meta, HoldsOnAGpuWhatPatchesTake) {
  WindowAxis axis{.size = 12, .window = 3, .padding = 1};
  Conv2d c{zeros({4, 12, 12, 64}, f32, meta_device),
           zeros({64, 3, 3, 64}, f32, meta_device),
           {axis, axis}};
  int64_t by_tiles = peak_of_convolution(c, meta_device);
  int64_t images = 3 * c.x.numel(), weight = c.weight.numel();  // x, y and the gradient of x
  {
    MetaTarget gpu(Device::Kind::cuda);
    EXPECT_EQ(peak_of_convolution(c, meta_device), 4 * (images + weight + elements_of_patches(c)));
  }
  EXPECT_EQ(peak_of_convolution(c, meta_device), by_tiles);
}

// Scores and their sums are two products of seen x dim a head.
TEST(Meta, CountsTheSeenPartOfAttention) {
  constexpr int64_t time = 64, heads = 2, dim = 16;
  auto products = [&](const AttentionShape& shape) {
    Tensor qkv = zeros({3 * time, heads, 3, dim}, f32, meta_device);
    meta_work() = {};
    EXPECT_EQ(attention(qkv, shape).shape(), Shape({3 * time, heads * dim}));
    return meta_work().products / (3 * heads * 2 * (2. * dim));
  };
  EXPECT_EQ(products({.time = time}), time * (time + 1) / 2);
  EXPECT_EQ(products({.time = time, .causal = false}), time * time);
  EXPECT_EQ(products({.time = time, .window = 10}), 10 * 11 / 2 + (time - 10) * 10);
}

}  // namespace
}  // namespace triax
