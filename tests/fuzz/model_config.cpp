// config.json of a Hugging Face model, asked for values of every kind.
#include "examples/hugging_face/source.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  std::string json = test::text_of(data, size);
  return test::accept_or_refuse([&] {
    hf::ModelConfig config(json, "input", {"llama"});
    (void)config.size("hidden_size");
    (void)config.real("rms_norm_eps", 1e-6);
    (void)config.flag("tie_word_embeddings", false);
    if (auto scaling = config.object("rope_scaling")) (void)scaling->text("rope_type");
  });
}
