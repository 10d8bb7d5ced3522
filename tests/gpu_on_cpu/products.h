#pragma once
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "tests/core/kernels.h"
#include "tests/gpu_on_cpu/libraries/blas.h"
#include "triax/core/cuda/runtime/devices.h"

// Products by Cuda on the stand-in for cuBLASLt, against those of the CPU.

namespace triax::test {

using cuda::Tuning;
using gpu_on_cpu::blas_counts;
using gpu_on_cpu::BlasCounts;

inline constexpr Device gpu{Device::Kind::cuda, 0};
inline constexpr DType floats[] = {f32, f64, f16, bf16};

using Counts = std::array<int64_t, 6>;  // none, bias, gelu, both, slope, sums

enum Layout { plain, transposed, spaced };
inline constexpr Layout layouts[] = {plain, transposed, spaced};

/// Random values of `shape`, the last two dims laid out in one of three ways.
inline Tensor laid_out(Shape shape, Layout layout, DType dtype, uint64_t seed, Device on) {
  int r = shape.rank();
  if (layout == plain) return randn(shape, dtype, seed).to(on);
  if (layout == transposed) {
    std::swap(shape[r - 1], shape[r - 2]);
    return randn(shape, dtype, seed).to(on).transpose(r - 1, r - 2);
  }
  int64_t width = shape[r - 1];
  shape[r - 1] += 5;
  return randn(shape, dtype, seed).to(on).narrow(r - 1, 3, width);
}

class CudaMatmul : public testing::Test {
 protected:
  CudaMatmul() {
    gpu_on_cpu::set_blas_habits({});
    for (DType t : floats) cuda::set_tuning(t, Tuning::heuristic);
  }

  ~CudaMatmul() override { EXPECT_EQ(blas_counts().invalid, invalid_); }

  /// f(device) returns what it made there: on the GPU that it made on the CPU.
  template <class F> void expect_equal(F f) {
    Tensors got = f(gpu), expected = f(cpu);
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "output " << i);
      Tensor x = got[i].contiguous().to(cpu);
      expect_near(x, doubles(expected[i]), 4 * tolerance(x.dtype()));
    }
  }

  /// A product of plain matrices that no other test has.
  Tensor multiply(int64_t m, int64_t n, int64_t k, DType dtype = bf16, Write write = Write::set) {
    Tensor a = randn({m, k}, dtype, 1).to(gpu), b = randn({k, n}, dtype, 2).to(gpu);
    Tensor c = full({m, n}, 1, f32, gpu);
    backend(gpu).matmul({a, b, c, write});
    return c.to(cpu);
  }
  /// What run() asked of the library.
  template <class F> static BlasCounts asked(F run) {
    BlasCounts before = blas_counts();
    run();
    BlasCounts after = blas_counts();
    after.heuristics -= before.heuristics;
    after.onto_others -= before.onto_others;
    for (size_t i = 0; i < 3; ++i) after.products[i] -= before.products[i];
    for (size_t i = 0; i < 6; ++i) after.epilogues[i] -= before.epilogues[i];
    return after;
  }

 private:
  int64_t invalid_ = blas_counts().invalid;
};

}  // namespace triax::test
