// Several GPUs of one process.
#include "tests/parallel/scatter_gather_cases.h"

namespace triax::parallel {
namespace {

using namespace cases;

TEST(ScatterGatherOnGpus, IsTheModelOnOneDevice) {
  constexpr Device a{Device::Kind::cuda, 0}, b{Device::Kind::cuda, 1}, c{Device::Kind::cuda, 2};
  expect_like_one_device({b, c, a});
  expect_like_one_device({a, b, c, b, a});
}

}  // namespace
}  // namespace triax::parallel
