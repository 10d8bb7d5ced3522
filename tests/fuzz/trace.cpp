// trace.json of --profile, as `report` and `schedule --overlay` read it.
#include "parallel/program/report/overlay.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("trace.json");
  file.set(data, size);
  return test::accept_or_refuse([&] {
    (void)parallel::report::read_trace(file.path());
    (void)parallel::report::read_overlay(file.path());
  });
}
