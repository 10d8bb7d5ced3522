// model.safetensors.index.json of a Hugging Face model, beside a file a.safetensors with tensor w.
#include <utility>

#include "examples/hugging_face/source.h"
#include "tests/fuzz/fuzz.h"
#include "triax/nn/state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("model.safetensors.index.json");
  static bool is_first = true;
  if (std::exchange(is_first, false))
    (void)nn::write_tensors(file.directory() + "/a.safetensors", {{"w", zeros({2}, f32, cpu)}}, {},
                            disk());
  file.set(data, size);
  return test::accept_or_refuse(
      [&] { (void)hf::open_weights(file.directory(), "transformer.", disk()); });
}
