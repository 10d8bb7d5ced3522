#include "examples/hugging_face/tokenizer_files.h"

#include <algorithm>

#include "examples/text/tokenizer/bpe.h"
#include "triax/core/check.h"

namespace triax::hf {

std::optional<text::Tokenizer> readable_tokenizer(const std::string& from, int64_t rows,
                                                  std::string& said) {
  std::string why;
  try {
    auto found = text::find_tokenizer(from);
    if (!found || found->size() <= rows) return found;
    why = fmt::format("tokenizer: {}: {} {}; expected at most the {} of the model", from,
                      found->size(), found->unit(), rows);
  } catch (const Error& e) {
    if (e.code() != Exit::data && e.code() != Exit::not_found) throw;
    why = e.what();
  }
  said += fmt::format("prompts of `sample` will be numbers of tokens: {}\n", why);
  return {};
}

std::vector<Role> roles_in(const text::Tokenizer& tokenizer) {
  std::vector<Role> found;
  for (auto [key, token] : {std::pair("bos_token", "<|begin_of_text|>"),
                            {"bos_token", "<s>"},
                            {"eos_token", "<|end_of_text|>"},
                            {"eos_token", "</s>"},
                            {"bos_token", "<|endoftext|>"},
                            {"eos_token", "<|endoftext|>"}}) {
    bool known = std::ranges::any_of(
        found, [&, name = std::string_view(key)](auto& r) { return r.key == name; });
    auto number = tokenizer.token(token);
    if (number && !known) found.push_back({key, token, *number});
  }
  return found;
}

std::vector<std::string> write_tokenizer_files(const parallel::CheckpointState& state,
                                               const std::string& to, const Files& files) {
  auto carried = state.find("tokenizer");
  if (carried == state.end()) return {};
  constexpr const char* name = "tokenizer of the checkpoint";
  nn::JsonReader json(carried->second, name, "it", text::deepest_tokenizer);
  if (!json.has("model")) return {};  // characters or numbers
  std::string config =
      "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
      "\"clean_up_tokenization_spaces\": false";
  auto tokenizer = text::Tokenizer::from_json(carried->second, name);
  for (const Role& r : roles_in(tokenizer))
    config += fmt::format(", \"{}\": {}", r.key, nn::quoted(r.token));
  files.replace(to + "/tokenizer.json", tokenizer.json());
  files.replace(to + "/tokenizer_config.json", config + "}\n");
  return {"tokenizer.json", "tokenizer_config.json"};
}

}  // namespace triax::hf
