// A hardware file of --hardware.
#include "triax/parallel/plan/hardware.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("here.toml");
  file.set(data, size);
  return test::accept_or_refuse([&] { (void)parallel::hardware_named(file.path()); });
}
