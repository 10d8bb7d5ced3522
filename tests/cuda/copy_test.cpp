#include <gtest/gtest.h>

#include "tests/cuda/emulated.h"
#include "tests/support/expect_error.h"
#include "triax/core/backend.h"

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
        expect_equal(0, [&](Outputs& on) {
          on->copy(from, on.out({n}, other, skip));
          on->copy(back, on.out({n}, dtype, skip));
        });
      }
}

TEST_P(CudaCopy, FollowsAnyStrides) {
  Tensor x = exact(randn({5, 7, 33}, dtype, 1));
  for (DType other : {dtype, f32, i64})
    expect_equal(0, [&](Outputs& on) {
      on->copy(x.transpose(0, 2), on.out({33, 7, 5}, other));
      on->copy(x, on.out({5, 9, 40}, other).narrow(1, 1, 7).narrow(2, 3, 33));
      on->copy(x, on.out({7, 5, 33}, other).transpose(0, 1));
      on->copy(x.narrow(0, 2, 1).expand({4, 7, 33}), on.out({4, 7, 33}, other));
    });
}

TEST_P(CudaCopy, TransposesThroughTiles) {
  for (auto& size : {std::pair(8, 8), {31, 33}, {100, 70}})
    for (int64_t batch : {1, 3}) {
      int64_t rows = size.first, columns = size.second;
      SCOPED_TRACE(testing::Message() << batch << " x " << rows << " x " << columns);
      Tensor x = exact(randn({batch, rows, columns}, dtype, 1), 1);
      Tensor wide = exact(randn({rows, batch, columns}, dtype, 2));
      expect_equal(0, [&](Outputs& on) {
        on->copy(x.transpose(1, 2), on.out({batch, columns, rows}));
        on->copy(x.transpose(1, 2),
                 on.out({batch, columns + 2, rows}, dtype, 1).narrow(1, 1, columns));
        on->copy(wide.transpose(0, 2), on.out({columns, batch, rows}));
      });
    }
}

TEST_P(CudaCopy, Fills) {
  for (DType t : dtypes)
    for (int64_t n : odd_sizes)
      expect_equal(0, [&](Outputs& on) {
        on->fill(on.out({n}, t, n == 33), 3.3);
        on->fill(on.out({3, n + 2}, t).narrow(1, 1, n), 2);
      });
}

TEST_P(CudaCopy, Accumulates) {
  for (DType other : {f32, f64, f16, bf16})
    for (int64_t n : odd_sizes)
      for (int64_t skip : {0, 1}) {
        Tensor x = exact(randn({n}, other, 4), skip);
        expect_equal(0, [&](Outputs& on) { on->accumulate(x, on.out({n}, dtype, skip)); });
      }
}

TEST(CudaDevice, OneThatIsNotThereIsRefused) {
  expect_config_error([] { backend({Device::Kind::cuda, 99}); }, {"device: cuda:99 asked for"});
  expect_config_error([] { empty({2}, f32, {Device::Kind::cuda, 99}); }, {"cuda:99"});
}

}  // namespace
}  // namespace triax::test
