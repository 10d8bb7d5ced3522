#include "examples/hugging_face/tokenizer_files.h"

#include <algorithm>

#include "core/check.h"
#include "examples/text/bpe.h"

namespace triax::hf {

std::optional<text::Tokenizer> readable_tokenizer(const std::string& from, int64_t rows) {
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
  fmt::print("prompts of `sample` will be numbers of tokens: {}\n", why);
  return {};
}

std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to,
                                              const Files& files) {
  constexpr uint64_t largest = uint64_t(256) << 20;
  constexpr const char* known[] = {"vocab.json",
                                   "merges.txt",
                                   "tokenizer.json",
                                   "tokenizer.model",
                                   "added_tokens.json",
                                   "chat_template.jinja",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "generation_config.json"};
  std::vector<std::string> copied;
  for (const std::string& name : files.list(from)) {
    if (std::ranges::count(known, name) == 0) continue;
    if (copied.empty()) files.make_directory(to);
    files.write(to + "/" + name, files.read(from + "/" + name, largest));
    copied.push_back(name);
  }
  if (!copied.empty()) files.sync_directory(to);
  return copied;
}

std::vector<std::string> write_tokenizer_files(const parallel::CheckpointState& state,
                                               const std::string& to, const Files& files) {
  auto carried = state.find("tokenizer");
  if (carried == state.end()) return {};
  nn::JsonReader json(carried->second, "tokenizer of the checkpoint", "it",
                      text::deepest_tokenizer);
  if (!json.has("model")) return {};  // characters or numbers
  std::string config =
      "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
      "\"clean_up_tokenization_spaces\": false";
  auto name = [&](const char* role, const char* token) {
    std::string content = nn::quoted(token);
    if (carried->second.find("\"content\":" + content) != std::string::npos)
      config += fmt::format(", \"{}\": {}", role, content);
  };
  name("eos_token", "<|endoftext|>");                                            // GPT-2
  name("bos_token", "<|begin_of_text|>"), name("eos_token", "<|end_of_text|>");  // Llama 3
  files.write(to + "/tokenizer.json", carried->second);
  files.write(to + "/tokenizer_config.json", config + "}\n");
  return {"tokenizer.json", "tokenizer_config.json"};
}

}  // namespace triax::hf
