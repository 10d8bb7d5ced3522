// The manifest of a directory of token shards.
#include "examples/text/token_files.h"
#include "tests/fuzz/fuzz.h"
#include "triax/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file(text::ShardManifest::name);
  file.set(data, size);
  return test::accept_or_refuse([&] {
    auto manifest = text::read_manifest(file.directory());
    if (manifest.tokens() < 0) fail(Exit::internal, "{} tokens", manifest.tokens());
    (void)text::find_tokens(file.directory());
  });
}
