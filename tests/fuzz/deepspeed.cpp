// DeepSpeed's JSON.
#include "triax/parallel/program/deepspeed/deepspeed.h"

#include "tests/fuzz/fuzz.h"
#include "triax/parallel/train/options/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("ds_config.json");
  static parallel::TrainOptions o;
  static auto settings = parallel::train_settings(o);
  o = {};
  file.set(data, size);
  return test::accept_or_refuse([&] {
    std::vector<std::string> given;
    (void)parallel::apply_deepspeed({file.path(), "fuzz", settings, given, 2});
  });
}
