// A .bin file of tokens: nanoGPT's bare ones, or llm.c's with a header.
#include "examples/text/token_files.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("tokens.bin");
  file.set(data, size);
  return test::accept_or_refuse([&] {
    int64_t largest = 0;
    (void)text::map_tokens(text::find_tokens(file.path()).training, 0, largest);
  });
}
