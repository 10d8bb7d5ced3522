#include "examples/text/tokenizer/numbers.h"

#include <charconv>
#include <sstream>

#include "core/check.h"
#include "core/io/files.h"

namespace triax::text {

size_t Numbers::encode(const Passage& passage, std::vector<int32_t>& tokens) const {
  std::istringstream words{std::string(passage.text)};
  for (std::string word; words >> word;) {
    int32_t token = -1;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    bool whole = error == std::errc() && end == word.data() + word.size();
    check_input(
        whole && token >= 0 && token < rows_, Exit::data,
        "{}: `{}`: the model came without a tokenizer; expected numbers of tokens, 0 to {}, "
        "such as `464 3290`\n  Training on token files, --tokenizer gpt2:DIR says what they stand "
        "for.",
        passage.source.name, printable(word), rows_ - 1);
    tokens.push_back(token);
  }
  return passage.text.size();
}

}  // namespace triax::text
