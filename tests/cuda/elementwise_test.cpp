#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaElementwise : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaElementwise, every_dtype(), name_of_dtype);

TEST_P(CudaElementwise, UnaryEqualsTheCpu) {
  for (int op = 0; op < functors::Unary::size; ++op)
    for (int64_t n : {0, 1, 31, 33, 1000})
      for (int64_t skip : {0, 1}) {
        SCOPED_TRACE(testing::Message() << "functor " << op << ", n " << n << ", skip " << skip);
        Tensor x = exact(randn({n}, dtype, 7, 2), skip), expected = empty_like(x);
        Tensors y = in_any_order([&] {
          Tensor out = exact(full({n}, 7, dtype, cpu), skip);
          b.unary(Unary(op), x, out);
          return Tensors{out};
        });
        host.unary(Unary(op), x, expected);
        expect_near(y[0], doubles(expected), within);
      }
}

}  // namespace
}  // namespace triax::test
