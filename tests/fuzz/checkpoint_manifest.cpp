// The members of a checkpoint's manifest, behind the right checksum: else the fuzzer would see
// nothing but the checksum.
#include "tests/fuzz/fuzz.h"
#include "triax/parallel/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  std::string members = test::text_of(data, size);
  return test::accept_or_refuse([&] {
    auto manifest = parallel::parse_manifest(parallel::seal(members), "input");
    (void)parallel::parse_manifest(parallel::to_text(manifest), "written again");
  });
}
