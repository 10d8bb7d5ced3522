#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaSoftmax : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaSoftmax, every_dtype(), name_of_dtype);

// Of every way that a row is held: in a warp's registers or a block's, or in memory.
std::vector<Shape> shapes() {
  std::vector<Shape> all = {{2, 3, 8}, {0, 8}, {5, 0}, {9, 1000}, {3, 2056}};
  for (int64_t width : {1031, 5000, 16400, 33000}) all.push_back({1, width});
  for (int64_t n : odd_sizes) {
    all.push_back({5, n});
    all.push_back({n > 100 ? 41 : n, 33});
  }
  return all;
}

TEST_P(CudaSoftmax, OfRows) {
  for (const Shape& shape : shapes())
    for (int64_t skip : {0, 1}) {
      SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : ""));
      Tensor x = exact(randn(shape, dtype, 3, 4), skip);
      expect_equal(
          [&](Backend& on) {
            Tensor p = sevens(shape, dtype, skip), l = sevens(shape, dtype, skip);
            on.softmax(x, p);
            on.log_softmax(x, l);
            return Tensors{p, l};
          },
          // The CPU's sum over a long row, where it is not made in lanes, is less exact.
          shape[-1] > 10000 ? 3 * within : within);
    }
}

TEST_P(CudaSoftmax, Backward) {
  for (const Shape& shape : shapes())
    for (int64_t skip : {0, 1}) {
      SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : ""));
      Tensor x = randn(shape, dtype, 3, 4), p = empty_like(x), l = empty_like(x);
      host.softmax(x, p);
      host.log_softmax(x, l);
      p = exact(p, skip);
      l = exact(l, skip);
      Tensor dy = exact(randn(shape, dtype, 4), skip);
      expect_equal(
          [&](Backend& on) {
            Tensor dp = sevens(shape, dtype, skip), dl = sevens(shape, dtype, skip);
            on.softmax_backward(p, dy, dp);
            on.log_softmax_backward(l, dy, dl);
            return Tensors{dp, dl};
          },
          10 * within);
    }
}

TEST_P(CudaSoftmax, OfHugeAndMaskedLogits) {
  double big = dtype == f16 ? 6e4 : 1e30, inf = INFINITY;
  Tensor x = from_host(std::vector<double>{big, -big, -inf, big, -inf, 0, -inf, -inf}, {2, 4}, cpu);
  x = exact(x.to(dtype));
  expect_equal([&](Backend& on) {
    Tensor y = sevens({2, 4}, dtype);
    on.softmax(x, y);
    return Tensors{y};
  });
}

}  // namespace
}  // namespace triax::test
