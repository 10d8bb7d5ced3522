#include <gtest/gtest.h>

#include "core/backend.h"
#include "tests/support/expect_error.h"

namespace triax::test {
namespace {

TEST(CudaDevice, OneThatIsNotThereIsRefused) {
  expect_config_error([] { backend({Device::Kind::cuda, 99}); }, {"device: cuda:99 asked for"});
  expect_config_error([] { empty({2}, f32, {Device::Kind::cuda, 99}); }, {"cuda:99"});
}

}  // namespace
}  // namespace triax::test
