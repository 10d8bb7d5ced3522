#include "tests/cuda/emulated.h"
#include "tests/support/windows.h"

namespace triax::test {
namespace {

class CudaWindows : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaWindows, every_dtype(), name_of_dtype);

TEST_P(CudaWindows, PatchesAreTheCpus) {
  for (const ConvCase& c : conv_cases()) {
    SCOPED_TRACE(str(c.x()) + " with " + str(c.weight()));
    Windows w = c.windows();
    Shape rows{c.images * w.of_image(), w.elements() * c.in};
    Tensor wide = exact(randn({c.images, c.height, c.width, c.in + 2}, dtype, 1));
    Tensor x = wide.narrow(3, 1, c.in), dy = exact(randn(rows, dtype, 2));
    expect_equal([&](Outputs& on) {
      on->patches(x, w, on.out(rows));
      on->patches_backward(dy, w, on.out(wide.shape()).narrow(3, 1, c.in));
    });
  }
}

TEST_P(CudaWindows, PoolsAreTheCpus) {
  for (const ConvCase& c : conv_cases()) {
    if (2 * c.high.padding > c.high.window || 2 * c.wide.padding > c.wide.window) continue;
    SCOPED_TRACE(str(c.x()));
    Tensor x = exact(randn(c.x(), dtype, 1)), dy = exact(randn(c.y(c.in), dtype, 2));
    for (auto kind : {Pool2d::Kind::max, Pool2d::Kind::mean})
      expect_equal([&](Outputs& on) {
        Tensor chosen = on.out(dy.shape(), i32);
        on->pool({kind, c.windows()}, x, on.out(dy.shape()), chosen);
        on->pool_backward({kind, c.windows()}, dy, chosen, on.out(c.x()));
      });
  }
}

}  // namespace
}  // namespace triax::test
