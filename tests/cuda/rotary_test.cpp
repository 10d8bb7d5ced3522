#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaRotary : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaRotary, every_dtype(), name_of_dtype);

TEST_P(CudaRotary, IsTheCpus) {
  for (int64_t tokens : {0, 3, 33, 120})
    for (int64_t width : {2, 6, 64})
      for (auto pairs : {Rotary::Pairs::halves, Rotary::Pairs::neighbours})
        for (auto turn : {Rotary::Turn::forth, Rotary::Turn::back}) {
          SCOPED_TRACE(testing::Message() << tokens << " tokens of width " << width);
          Tensor all = exact(randn({tokens, 2, 5, width}, dtype, 1));
          Rotary r{all.narrow(2, 1, 3), exact(randn({4, width}, f32, 2)), 3, pairs, turn};
          expect_equal([&](Backend& on) {
            Tensor y = sevens(r.x.shape(), dtype);
            on.rotary(r, y);
            return Tensors{y};
          });
        }
}

}  // namespace
}  // namespace triax::test
