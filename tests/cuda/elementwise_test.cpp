#include <algorithm>
#include <cmath>

#include "tests/cuda/emulated.h"
#include "triax/core/functors/binary.h"
#include "triax/core/functors/unary.h"

namespace triax::test {
namespace {

class CudaElementwise : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaElementwise, every_dtype(), name_of_dtype);

TEST_P(CudaElementwise, Unary) {
  for (int op = 0; op < functors::Unary::size; ++op)
    for (int64_t n : odd_sizes)
      for (int64_t skip : {0, 1}) {
        SCOPED_TRACE(testing::Message()
                     << functors::Unary::names[op] << ", n " << n << ", skip " << skip);
        Tensor x = exact(randn({n}, dtype, 7, 2), skip);
        expect_equal([&](Outputs& on) { on->unary(Unary(op), x, on.out({n}, dtype, skip)); });
      }
}

TEST_P(CudaElementwise, UnaryInPlace) {
  Tensor x = randn({333}, dtype, 7);
  expect_equal([&](Outputs& on) {
    Tensor z = on.add(exact(x));
    on->unary(unary_id<functors::Tanh>(), z, z);
  });
}

TEST_P(CudaElementwise, UnaryBackward) {
  for (int op = 0; op < functors::Unary::size; ++op)
    for (int64_t n : odd_sizes)
      for (Write write : {Write::set, Write::add}) {
        SCOPED_TRACE(testing::Message() << functors::Unary::names[op] << ", n " << n);
        int64_t skip = n == 33;
        Tensor x = exact(randn({n}, dtype, 7, 2), skip), y = exact(empty_like(x), skip);
        Tensor dy = exact(randn({n}, dtype, 8), skip);
        host.unary(Unary(op), x, y);
        expect_equal(3 * within, [&](Outputs& on) {
          on->unary_backward(Unary(op), x, y, dy, on.out({n}, dtype, skip), write);
        });
      }
}

// All finite numbers of 16 bits, 65,536 of f32, within what fn::fast_exp and fn::fast_divide
// promise on GPUs, and half a unit in the last place for rounding. Here the formula is checked;
// these two are exact.
TEST_P(CudaElementwise, ActivationsOfEveryNumber) {
  if (dtype == f64) return;
  Tensor x = empty({65536}, dtype, cpu);
  visit_float(dtype, [&]<class T>() {
    for (uint32_t i = 0; i < 65536; ++i) {
      if constexpr (sizeof(T) == 2) x.data<T>()[i].bits = uint16_t(i);
      else if constexpr (sizeof(T) == 4) x.data<T>()[i] = bit_cast<float>(i * 65521u);
    }
  });
  double unit = dtype == bf16 ? 0x1p-8 : dtype == f16 ? 0x1p-11 : 0x1p-24;
  double least = dtype == f16 ? 0x1p-24 : 0x1p-120;
  std::vector<double> in = doubles(x);
  auto check = [&](const char* what, const Tensor& y, auto exponent) {
    std::vector<double> out = doubles(y);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!std::isfinite(in[i])) continue;
      double a = exponent(in[i]), expected = in[i] / (1 + std::exp(a));
      double bound = std::fabs(expected) * (1.01 * unit + 0x1p-22 * (3 + std::fabs(a))) + least;
      if (std::fabs(a) > 87) bound = std::max(bound, 1.01 * unit * std::fabs(expected) + 0x1p-100);
      ASSERT_LE(std::fabs(out[i] - expected), bound) << what << " of " << in[i];
    }
  };
  Tensor y = empty_like(x);
  b.unary(unary_id<functors::Gelu>(), x, y);
  check("gelu", y, [](double v) { return -1.5957691216057308 * (v + 0.044715 * v * v * v); });
  b.unary(unary_id<functors::Silu>(), x, y);
  check("silu", y, [](double v) { return -v; });
}

TEST_P(CudaElementwise, SlopesReadOnlyWhatTheyUse) {
  Tensor x = exact(randn({100}, dtype, 1)), dy = exact(randn({100}, dtype, 2));
  expect_equal([&](Outputs& on) {
    on->unary_backward(unary_id<functors::Gelu>(), x, {}, dy, on.out({100}), Write::set);
    on->unary_backward(unary_id<functors::Tanh>(), {}, x, dy, on.out({100}), Write::set);
  });
}

struct Pair {
  Tensor a, b;  // before they are expanded
};

std::vector<Pair> pairs(DType t) {
  return {
      {exact(randn({3, 5, 33}, t, 1)), exact(randn({3, 5, 33}, t, 2))},
      {exact(randn({333}, t, 1), 1), exact(randn({333}, t, 2))},
      {exact(randn({3, 5, 33}, t, 1)), exact(randn({33}, t, 2))},
      {exact(randn({3, 5, 33}, t, 1)), exact(randn({3, 5, 1}, t, 2))},
      {exact(randn({5, 1}, t, 1)), exact(randn({1, 33}, t, 2))},
      {exact(randn({33, 5}, t, 1)).transpose(0, 1), exact(randn({5, 33}, t, 2))},
      {exact(randn({3, 5, 32}, t, 1)), exact(randn({32}, t, 2))},
      {exact(randn({5, 16}, t, 1)), exact(randn({5, 1}, t, 2))},
      {exact(randn({5, 33}, t, 1)).narrow(1, 0, 32), exact(randn({32}, t, 2))},
      {exact(randn({}, t, 1)), exact(randn({3, 64}, t, 2))},
      {exact(randn({5, 3, 16}, t, 1)).transpose(0, 1), exact(randn({5, 16}, t, 2), 1)},
      {exact(randn({5, 3, 16}, t, 1)).transpose(0, 1), exact(randn({5, 16}, t, 2))},
      {exact(randn({4, 31, 8}, t, 1)).narrow(1, 3, 9), exact(randn({8, 9}, t, 2)).transpose(0, 1)},
      {exact(randn({0, 4}, t, 1)), exact(randn({4}, t, 2))},
      {exact(randn({}, t, 1)), exact(randn({}, t, 2))}};
}

TEST_P(CudaElementwise, BinaryExpandsItsOperands) {
  for (const Pair& p : pairs(dtype))
    for (int op = 0; op < functors::Binary::size; ++op) {
      SCOPED_TRACE(functors::Binary::names[op]);
      Tensor a = p.a, c = p.b;
      Shape shape = broadcast("test", a.shape(), c.shape());
      expect_equal([&](Outputs& on) {
        on->binary(Binary(op), a.expand(shape), c.expand(shape), on.out(shape));
      });
    }
}

TEST_P(CudaElementwise, WherePicks) {
  Tensor mask = exact(empty({1, 7, 33}, u8, cpu));
  for (int i = 0; i < 231; ++i) mask.data<uint8_t>()[i] = uint8_t(i % 3 == 0 ? 5 : 0);
  Tensor a = exact(randn({4, 7, 33}, dtype, 1)), c = exact(randn({33}, dtype, 2));
  Tensor all = exact(clone(mask.expand(a.shape()))), dense = exact(clone(c.expand(a.shape())));
  expect_equal(0, [&](Outputs& on) {
    on->where(mask.expand(a.shape()), a, c.expand(a.shape()), on.out(a.shape()));
    on->where(all, a, dense, on.out(a.shape()));
  });
}

TEST_P(CudaElementwise, WherePicksInPacks) {
  Tensor mask = exact(empty({1, 7, 32}, u8, cpu)), of_rows = exact(empty({7, 1}, u8, cpu));
  for (int i = 0; i < 224; ++i) mask.data<uint8_t>()[i] = uint8_t(i % 3 == 0 ? 5 : 0);
  for (int i = 0; i < 7; ++i) of_rows.data<uint8_t>()[i] = uint8_t(i % 2);
  Tensor a = exact(randn({4, 7, 32}, dtype, 1)), c = exact(randn({32}, dtype, 2));
  Tensor one = exact(randn({}, dtype, 3));
  expect_equal(0, [&](Outputs& on) {
    on->where(mask.expand(a.shape()), one.expand(a.shape()), a, on.out(a.shape()));
    on->where(of_rows.expand(a.shape()), a, c.expand(a.shape()), on.out(a.shape()));
  });
}

TEST_P(CudaElementwise, DropoutDropsWhatTheCpuDrops) {
  for (int64_t column : {0, 1, 6, 255})
    for (int64_t width : {1, 31, 300}) {
      Tensor x = exact(randn({9, width}, dtype, 3));
      expect_equal(0, [&](Outputs& on) {
        on->dropout(x, random::Mask{0.3f, 99, 12, column}, on.out(x.shape()));
      });
    }
}

}  // namespace
}  // namespace triax::test
