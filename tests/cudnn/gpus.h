#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "triax/core/cuda/libraries/cudnn_graph.h"
#include "triax/core/error.h"

/// @file GPUs that are not here. cuDNN chooses engines and compiles for the properties that
/// h200.json and a100.json describe. They hold what cudaGetDeviceProperties reports, under the
/// names of the library's own serialisation of a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. The library
/// loads the driver; where there is none it finds that of fake_driver.sh, which takes compiled
/// code.
namespace triax::test {

inline cuda::dnn::Descriptor read_gpu(const std::string& name) {
  std::ifstream in(std::string(TRIAX_TEST_GPUS) + "/" + name + ".json");
  std::string json{std::istreambuf_iterator<char>(in), {}};
  EXPECT_FALSE(json.empty()) << name;
  cuda::dnn::Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json)).finalize();
  return gpu;
}

/// Makes a plan; a driver that knows another GPU than `gpu` may refuse the compiled code.
inline std::unique_ptr<cuda::dnn::Plan> make_plan(cuda::dnn::Graph graph,
                                                  const cuda::dnn::Descriptor& gpu) {
  std::string refusal;
  std::unique_ptr<cuda::dnn::Plan> plan;
  try {
    plan = cuda::dnn::Plan::make(std::move(graph), gpu, refusal);
    EXPECT_TRUE(plan) << refusal;
  } catch (const Error& e) {
    EXPECT_FALSE(dlsym(RTLD_DEFAULT, "triax_fake_driver")) << e.what();
    EXPECT_NE(std::string(e.what()).find("cuLibraryLoad"), std::string::npos) << e.what();
  }
  return plan;
}

/// Tests with the name of a GPU.
class OnAbsentGpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
      GTEST_SKIP() << "no driver, and no stub to make one of: " << dlerror();
  }
};

}  // namespace triax::test
