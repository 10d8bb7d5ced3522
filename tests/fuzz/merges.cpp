// vocab.json and merges.txt of byte-level BPE, with a zero byte between.
#include "examples/text/tokenizer/bpe.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::TemporaryDirectory directory;
  std::string both = test::text_of(data, size);
  size_t end = std::min(both.find('\0'), size);
  test::write_bytes(directory / "vocab.json", both.substr(0, end));
  test::write_bytes(directory / "merges.txt", both.substr(std::min(end + 1, size)));
  return test::accept_or_refuse([&] { (void)text::bpe_from_two_files(directory.path()); });
}
