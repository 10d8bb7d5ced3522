#include "examples/text/tokenizer/numbers.h"

#include <sstream>

#include "triax/core/io/files.h"

namespace triax::text {

size_t Numbers::encode(const Passage& passage, std::vector<int32_t>& tokens) const {
  size_t end = passage.text.size();  // what follows may go on with the last number
  if (passage.goes_on) end = passage.text.find_last_of(" \t\n\v\f\r") + 1;
  std::istringstream words{std::string(passage.text.substr(0, end))};
  for (std::string word; words >> word;) {
    int32_t token = -1;
    check_input(
        parse_number(word, token) && token >= 0 && token < rows_, Exit::data,
        "{}: `{}`: the model came without a tokenizer; expected numbers of tokens, 0 to {}, "
        "such as `464 3290`\n  Training on token files, --tokenizer gpt2:DIR says what they stand "
        "for.",
        passage.source.name, printable(word), rows_ - 1);
    tokens.push_back(token);
  }
  return end;
}

}  // namespace triax::text
