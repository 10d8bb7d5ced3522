// The settings that a checkpoint keeps, as a run that resumes takes them.
#include "tests/fuzz/fuzz.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/runs/run_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static parallel::TrainOptions o;
  static auto settings = parallel::train_settings(o);
  o = {};
  return test::accept_or_refuse([&] {
    parallel::restore(settings, "input", {{"settings", test::text_of(data, size)}});
  });
}
