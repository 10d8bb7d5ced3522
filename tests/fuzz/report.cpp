// metrics.jsonl of a run, as `report` and `runs` read it.
#include "parallel/program/report/runs.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("metrics.jsonl");
  file.set(data, size);
  return test::accept_or_refuse([&] { (void)parallel::report::read_steps(file.directory()); });
}
