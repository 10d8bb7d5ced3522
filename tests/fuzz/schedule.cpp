// A schedule's file, as --schedule reads it.
#include "tests/fuzz/fuzz.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  std::string json = test::text_of(data, size);
  return test::accept_or_refuse([&] { (void)parallel::parse_schedule(json, "input"); });
}
