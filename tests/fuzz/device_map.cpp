// The JSON of --device-map, for a model of a few layers.
#include "triax/parallel/program/device_map.h"

#include "tests/fuzz/fuzz.h"
#include "tests/support/tiny_task.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("map.json");
  static const parallel::Task task = test::task_of();
  file.set(data, size);
  return test::accept_or_refuse([&] {
    auto o = test::tiny_options();
    (void)parallel::apply_device_map(file.path(), task, o);
  });
}
