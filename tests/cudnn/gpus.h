#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "core/cuda/cudnn_graph.h"

/// @file GPUs that are not here. cuDNN chooses engines and compiles for the properties that
/// h200.json and a100.json describe. They hold what cudaGetDeviceProperties reports, under the
/// names of the library's own serialisation of a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. The library
/// loads the driver, for which the toolkit's stub will do until compiled code is to be loaded.
namespace triax::test {

inline cuda::dnn::Descriptor read_gpu(const std::string& name) {
  std::ifstream in(std::string(TRIAX_TEST_GPUS) + "/" + name + ".json");
  std::string json{std::istreambuf_iterator<char>(in), {}};
  EXPECT_FALSE(json.empty()) << name;
  cuda::dnn::Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json)).finalize();
  return gpu;
}

/// Tests with the name of a GPU.
class OnAbsentGpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
      GTEST_SKIP() << "no driver and no stub of it: " << dlerror();
  }
};

}  // namespace triax::test
