#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaCopy : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaCopy, every_dtype(), name_of_dtype);

constexpr DType dtypes[] = {f32, f64, f16, bf16, i32, i64, u8};

TEST_P(CudaCopy, ConvertsEveryDType) {
  for (DType other : dtypes)
    for (int64_t n : odd_sizes)
      for (int64_t skip : {0, 1}) {
        SCOPED_TRACE(testing::Message() << name(other) << ", n " << n << ", skip " << skip);
        Tensor x = empty({n}, f64, cpu);
        for (int64_t i = 0; i < n; ++i) x.data<double>()[i] = double(i % 100) + 0.3;
        Tensor from = exact(x.to(dtype), skip), back = exact(x.to(other), skip);
        expect_equal(
            [&](Backend& on) {
              Tensor to = sevens({n}, other, skip), mine = sevens({n}, dtype, skip);
              on.copy(from, to);
              on.copy(back, mine);
              return Tensors{to, mine};
            },
            0);
      }
}

TEST_P(CudaCopy, FollowsAnyStrides) {
  Tensor x = exact(randn({5, 7, 33}, dtype, 1));
  for (DType other : {dtype, f32, i64})
    expect_equal(
        [&](Backend& on) {
          Tensor transposed = sevens({33, 7, 5}, other), part = sevens({5, 9, 40}, other);
          Tensor into = sevens({7, 5, 33}, other), stretched = sevens({4, 7, 33}, other);
          on.copy(x.transpose(0, 2), transposed);
          on.copy(x, part.narrow(1, 1, 7).narrow(2, 3, 33));
          on.copy(x, into.transpose(0, 1));
          on.copy(x.narrow(0, 2, 1).expand({4, 7, 33}), stretched);
          return Tensors{transposed, part, into, stretched};
        },
        0);
}

TEST_P(CudaCopy, TransposesThroughTiles) {
  for (auto& size : {std::pair(8, 8), {31, 33}, {100, 70}})
    for (int64_t batch : {1, 3}) {
      int64_t rows = size.first, columns = size.second;
      SCOPED_TRACE(testing::Message() << batch << " x " << rows << " x " << columns);
      Tensor x = exact(randn({batch, rows, columns}, dtype, 1), 1);
      Tensor wide = exact(randn({rows, batch, columns}, dtype, 2));
      expect_equal(
          [&](Backend& on) {
            Tensor turned = sevens({batch, columns, rows}, dtype);
            Tensor part = sevens({batch, columns + 2, rows}, dtype, 1);
            Tensor all = sevens({columns, batch, rows}, dtype);
            on.copy(x.transpose(1, 2), turned);
            on.copy(x.transpose(1, 2), part.narrow(1, 1, columns));
            on.copy(wide.transpose(0, 2), all);
            return Tensors{turned, part, all};
          },
          0);
    }
}

TEST_P(CudaCopy, Fills) {
  for (DType t : dtypes)
    for (int64_t n : odd_sizes)
      expect_equal(
          [&](Backend& on) {
            Tensor x = sevens({n}, t, n == 33), part = sevens({3, n + 2}, t);
            on.fill(x, 3.3);
            on.fill(part.narrow(1, 1, n), 2);
            return Tensors{x, part};
          },
          0);
}

TEST_P(CudaCopy, Accumulates) {
  for (DType other : {f32, f64, f16, bf16})
    for (int64_t n : odd_sizes)
      for (int64_t skip : {0, 1}) {
        Tensor x = exact(randn({n}, other, 4), skip);
        expect_equal(
            [&](Backend& on) {
              Tensor to = sevens({n}, dtype, skip);
              on.accumulate(x, to);
              return Tensors{to};
            },
            0);
      }
}

}  // namespace
}  // namespace triax::test
