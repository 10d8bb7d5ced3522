// The JSON of a safetensors file's header; the first byte says how much data follows it.
#include "tests/fuzz/fuzz.h"
#include "triax/core/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  if (size == 0) return 0;
  std::string json = test::text_of(data + 1, size - 1);
  return test::accept_or_refuse([&] {
    auto header = nn::parse_header(json, data[0] * uint64_t{4}, "input");
    (void)nn::parse_header(nn::format_header(header), data[0] * uint64_t{4}, "written again");
  });
}
