#include <algorithm>

#include "examples/hugging_face/gguf.h"
#include "examples/text/tokenizer/bpe.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::hf {
namespace {

enum Kind : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

/// Returns llama.cpp's name for how words are cut; empty if that is not known here.
std::string name_of(const nn::JsonReader& root) try {
  std::string of_llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  std::string of_qwen2 = of_llama3;
  of_qwen2.erase(of_qwen2.find("{1,3}"), 5);
  const text::WordSplit gpt2{std::string(text::gpt2_pattern)}, digit{R"(\p{N})"};
  auto splits = text::words_from_json(root.at("pre_tokenizer")).splits();
  using Splits = std::vector<text::WordSplit>;
  for (auto& [known, name] : {std::pair(Splits{gpt2}, "gpt-2"),
                              {Splits{{of_llama3}}, "llama-bpe"},
                              {Splits{{of_qwen2}}, "qwen2"},
                              {Splits{digit, gpt2}, "smollm"}})
    if (splits == known) return name;
  return "";
} catch (const Error&) {  // a kind that is not read here
  return "";
}

/// True if every text begins with a special token.
bool adds_bos(const nn::JsonReader& root) {
  if (!root.has("post_processor") || root.at("post_processor").is_null()) return false;
  std::vector<nn::JsonReader> steps{root.at("post_processor")};
  if (steps[0].at("type").text() == "Sequence") steps = steps[0].at("processors").elements(64);
  return std::ranges::any_of(steps, [](auto& step) {
    if (step.at("type").text() != "TemplateProcessing") return false;
    auto parts = step.at("single").elements(64);
    return !parts.empty() && parts[0].has("SpecialToken");
  });
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;

  /// Sets a token, which a model of fewer rows does not have.
  void set(uint64_t id, const std::string& text, Kind kind) {
    if (id < texts.size()) texts[id] = text, kinds[id] = kind;
  }
};

Tokens tokens_of(const nn::JsonReader& root, int64_t rows) {
  Tokens all;
  for (int64_t i = 0; i < rows; ++i)
    all.texts.push_back(fmt::format("[PAD{}]", i)), all.kinds.push_back(unused);
  auto model = root.at("model");
  std::string none =
      model.has("unk_token") && model.at("unk_token").is_text() ? model.at("unk_token").text() : "";
  for (auto& [text, id] : model.at("vocab").members()) {
    bool is_byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
    all.set(id.number(), text, is_byte ? byte : !none.empty() && text == none ? unknown : normal);
  }
  if (!root.has("added_tokens")) return all;
  for (auto& added : root.at("added_tokens").elements(size_t(text::most_tokens))) {
    bool special = text::flag_in(added, "special", false);
    if (none.empty() || added.at("content").text() != none)
      all.set(added.at("id").number(), added.at("content").text(),
              special ? control : user_defined);
  }
  return all;
}

void add_chat_template(GgufKeys& keys, const std::string& directory) {
  auto read = [&](const char* name) {
    return disk().read(directory + "/" + name, text::largest_tokenizer_file);
  };
  auto names = disk().list(directory);
  if (std::ranges::count(names, "chat_template.jinja") > 0)
    return keys.add("tokenizer.chat_template", read("chat_template.jinja"));
  constexpr const char* file = "tokenizer_config.json";
  if (std::ranges::count(names, file) == 0) return;
  nn::JsonReader config(read(file), file, "the file", text::deepest_tokenizer);
  if (config.has("chat_template") && config.at("chat_template").is_text())
    keys.add("tokenizer.chat_template", config.at("chat_template").text());
}

/// Adds where SentencePiece's `tokenizer` puts spaces. Returns how llama.cpp does otherwise.
std::string other_spaces(GgufKeys& keys, const std::string& tokenizer) try {
  auto read = text::Tokenizer::from_json(tokenizer, "tokenizer.json");
  auto spelled = [&](const char* text) { return read.decode(read.encode(text)); };
  bool puts = spelled("a") == " a", always = spelled(" a") == "  a";
  keys.add_flag("tokenizer.ggml.add_space_prefix", puts);
  return puts && !always ? "it puts a space also before a text that begins with one" : "";
} catch (const Error& e) {  // a kind that is not read here
  return parts_of(e.what(), '\n')[0];
}

}  // namespace

std::string add_tokenizer(GgufKeys& keys, const std::string& directory, int64_t vocabulary) {
  constexpr const char *key = "tokenizer.ggml.model", *file = "tokenizer.json";
  auto without = [&](const char* why) {
    keys.add(key, "none");
    return fmt::format("no tokenizer in the file: {}; prompts are numbers of tokens\n", why);
  };
  if (std::ranges::count(disk().list(directory), file) == 0)
    return without("the checkpoint has no tokenizer.json");
  std::string text = disk().read(directory + "/" + file, text::largest_tokenizer_file);
  nn::JsonReader root(text, file, "the file", text::deepest_tokenizer);
  if (!root.at("model").has("merges")) return without("its kind is not BPE");
  bool pieces = text::flag_in(root.at("model"), "byte_fallback", false);  // SentencePiece's
  Tokens all = tokens_of(root, vocabulary);
  std::string pre = name_of(root);
  keys.add(key, pieces ? "llama" : "gpt2");
  if (!pieces) keys.add("tokenizer.ggml.pre", pre.empty() ? "default" : pre);
  keys.add("tokenizer.ggml.tokens", all.texts);
  keys.add("tokenizer.ggml.token_type", all.kinds);
  if (pieces) {  // merged by score, in the order of their numbers
    std::vector<float> scores;
    for (int64_t i = 0; i < vocabulary; ++i) scores.push_back(-float(i));
    keys.add("tokenizer.ggml.scores", scores);
  }
  std::vector<std::string> merges;
  for (auto& [left, right] : text::merges_in(root.at("model"), file))
    merges.push_back(left + " " + right);
  keys.add("tokenizer.ggml.merges", merges);
  keys.add_flag("tokenizer.ggml.add_bos_token", adds_bos(root));
  add_chat_template(keys, directory);
  std::string other = pieces ? other_spaces(keys, text) : "";
  if (!pieces && pre.empty()) other = "it has no name for how this tokenizer cuts them";
  return other.empty() ? "" : "llama.cpp may cut some words otherwise: " + other + "\n";
}

}  // namespace triax::hf
