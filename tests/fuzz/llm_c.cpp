// A GPT-2 checkpoint of llm.c, all tensors of it.
#include "examples/minigpt/config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("gpt2.bin");
  file.set(data, size);
  return test::accept_or_refuse([&] {
    auto [config, weights] = minigpt::open_llm_c(file.path(), disk());
    for (auto& [name, weight] : weights) (void)weight.read();
  });
}
