// A pattern of a tokenizer.json, with which a text is cut into words, whole and in two pieces.
#include "examples/text/tokenizer/words.h"
#include "tests/fuzz/fuzz.h"
#include "triax/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  std::string pattern = test::text_of(data, std::min<size_t>(size, 300));
  const std::string text =
      "It's ONE fox\u2019s \r\n\n  12345!? \u65E5\u672C aaaaaaaaaaaaaaaab e\u0301 \u00DF\n";
  return test::accept_or_refuse([&] {
    text::Words words({{pattern}});
    text::WordReader reader(words, text, {"input"});
    std::vector<size_t> whole, parts;
    auto read = [&](std::vector<size_t>& ends, const text::Stretch& s) {
      return reader.read(s, [&](size_t, size_t end) { ends.push_back(end); });
    };
    read(whole, {0, text.size()});
    size_t cut = read(parts, {0, text.find("345"), true});
    read(parts, {cut, text.size()});
    if (parts != whole) fail(Exit::internal, "words depend on where the text was cut");
  });
}
