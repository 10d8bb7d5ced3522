// trace.json of --profile, as the report reads it.
#include "parallel/program/report/trace.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("trace.json");
  file.set(data, size);
  return test::accept_or_refuse([&] { (void)parallel::report::read_trace(file.path()); });
}
