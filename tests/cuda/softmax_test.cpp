#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaSoftmax : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaSoftmax, every_dtype(), name_of_dtype);

TEST_P(CudaSoftmax, EqualsTheCpu) {
  for (int64_t rows : {0, 1, 5})
    for (int64_t width : {1, 31, 33, 1000}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      Tensor x = exact(randn({rows, width}, dtype, 3, 4)), expected = empty_like(x);
      Tensors y = in_any_order([&] {
        Tensor out = exact(full(x.shape(), 7, dtype, cpu));
        b.softmax(x, out);
        return Tensors{out};
      });
      host.softmax(x, expected);
      expect_near(y[0], doubles(expected), within);
    }
}

}  // namespace
}  // namespace triax::test
