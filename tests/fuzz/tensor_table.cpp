// A table of tensors that `replay --out` wrote; what was read is written and read again.
#include "tests/fuzz/fuzz.h"
#include "triax/core/check.h"
#include "triax/parallel/train/step/digests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("table");
  file.set(data, size);
  return test::accept_or_refuse([&] {
    auto table = parallel::load_table(file.path());
    parallel::save_table(file.path(), table);
    check(parallel::compare(table.rows, parallel::load_table(file.path()).rows).count == 0,
          "another table was read than was written");
  });
}
