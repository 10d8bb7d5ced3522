#pragma once
#include <cstdlib>
#include <string_view>

#include "triax/core/backend.h"
#include "triax/core/check.h"

namespace triax::test {

/// Where tests of what any device must do run: `cpu`, or what TRIAX_TEST_DEVICE says (`cuda:0`).
/// They make tensors there, and read them through to_host().
///
/// Which tests those are: tests/CMakeLists.txt lists them. Their own programs (test_autograd,
/// test_nn, test_optim) run them on the CPU; test_on_gpu has all of them and those of tests/on_gpu
/// for a GPU:
///     TRIAX_TEST_DEVICE=cuda:0 build/release/bin/test_on_gpu
/// and test_on_emulated_gpu is the same with the GPU made of CPU threads (tests/gpu_on_cpu), which
/// every run of the tests includes.
inline Device test_device() {
  static const Device device = [] {
    const char* said = std::getenv("TRIAX_TEST_DEVICE");
    std::string_view text = said ? said : "cpu";
    for (int index = 0; index < 16; ++index)
      if (Device gpu{Device::Kind::cuda, index}; text == str(gpu)) return gpu;
    check_input(text == "cpu", Exit::config, "TRIAX_TEST_DEVICE: `{}`; expected cpu or cuda:0",
                text);
    return cpu;
  }();
  return device;
}

/// Is it a GPU, if only one made of CPU threads?
inline bool on_gpu() { return test_device().kind == Device::Kind::cuda; }
inline bool on_real_gpu() {
  return on_gpu() &&
         std::string_view(backend(test_device()).name()).find("on CPU") == std::string_view::npos;
}

}  // namespace triax::test
