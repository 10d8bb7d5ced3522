// A whole safetensors file.
#include "tests/fuzz/fuzz.h"
#include "triax/nn/state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("model.safetensors");
  file.set(data, size);
  return test::accept_or_refuse([&] { (void)nn::load_tensors(file.path()); });
}
