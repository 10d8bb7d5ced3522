// A tokenizer.json, with which text is encoded and decoded, and which is written again.
#include "examples/text/tokenizer/tokenizer.h"

#include "tests/fuzz/fuzz.h"
#include "triax/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  std::string json = test::text_of(data, size);
  return test::accept_or_refuse([&] {
    auto tokenizer = text::Tokenizer::from_json(json, "input");
    std::string text =
        "The quick\xe2\x96\x81\n</s> brown 12345 føx’s "
        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb";
    auto tokens = tokenizer.encode(text);
    (void)tokenizer.decode(tokens);  // of added tokens that are bytes too, another text
    auto again = text::Tokenizer::from_json(tokenizer.json(), "again");
    if (again.encode(text) != tokens || again.hash() != tokenizer.hash())
      fail(Exit::internal, "what was written is another tokenizer");
  });
}
