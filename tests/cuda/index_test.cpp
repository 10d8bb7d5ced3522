#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaIndex : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaIndex, every_dtype(), name_of_dtype);

Tensor indices(const Shape& shape, int64_t below, DType dtype) {
  Tensor x = exact(empty(shape, i64, cpu));
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = i * 7 % below;
  return exact(x.to(dtype));
}

TEST_P(CudaIndex, SelectAndAdd) {
  for (DType of : {i32, i64})
    for (int dim : {0, 1, -1})
      for (int64_t n : {0, 1, 31, 33}) {
        SCOPED_TRACE(testing::Message() << "dim " << dim << ", n " << n);
        Tensor x = exact(randn({5, 6, 33}, dtype, 1));
        Tensor index = indices({n}, x.size(dim), of);
        Shape picked = x.shape();
        picked[dim] = n;
        Tensor dy = exact(randn(picked, dtype, 2));
        expect_equal(
            [&](Backend& on) {
              Tensor y = sevens(picked, dtype), dx = sevens(x.shape(), dtype);
              Tensor exact_sums = sevens(x.shape(), sums), turned = sevens({33, 6, 5}, dtype);
              on.index_select(x, dim, index, y);
              on.index_add(dy, dim, index, dx);
              on.index_add(dy, dim, index, exact_sums);
              if (dim == 1 && n > 0) on.index_add(dy, dim, index, turned.transpose(0, 2));
              return Tensors{y, dx, exact_sums, turned};
            },
            0);
      }
}

TEST_P(CudaIndex, OneDim) {
  Tensor x = exact(randn({33}, dtype, 1)), dy = exact(randn({100}, dtype, 2));
  Tensor index = indices({100}, 33, i32);
  expect_equal(
      [&](Backend& on) {
        Tensor y = sevens({100}, dtype), z = sevens({100}, dtype), dx = sevens({33}, dtype);
        Tensor dz = sevens({33}, dtype);
        on.index_select(x, 0, index, y);
        on.gather(x, index, z);
        on.index_add(dy, 0, index, dx);
        on.scatter_add(dy, index, dz);
        return Tensors{y, z, dx, dz};
      },
      0);
}

TEST_P(CudaIndex, GatherAndScatterAdd) {
  for (DType of : {i32, i64})
    for (int64_t n : {1, 31, 33}) {
      Tensor x = exact(randn({4, 5, 33}, dtype, 1)), dy = exact(randn({4, 5, n}, dtype, 2));
      Tensor index = indices({4, 5, n}, 33, of);
      expect_equal(
          [&](Backend& on) {
            Tensor y = sevens(dy.shape(), dtype), dx = sevens(x.shape(), dtype);
            Tensor exact_sums = sevens(x.shape(), sums);
            on.gather(x, index, y);
            on.scatter_add(dy, index, dx);
            on.scatter_add(dy, index, exact_sums);
            return Tensors{y, dx, exact_sums};
          },
          0);
    }
}

}  // namespace
}  // namespace triax::test
