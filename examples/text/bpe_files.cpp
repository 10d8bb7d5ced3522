#include <algorithm>
#include <map>
#include <set>

#include "core/check.h"
#include "core/files.h"
#include "examples/text/bpe.h"

namespace triax::text {
namespace {

/// Bytes as files write them: those that print as Latin-1 stand for themselves, the others are
/// U+0100 and following, so that no token holds a space or a control character.
std::array<char32_t, 256> shown_bytes() {
  std::array<char32_t, 256> shown{};
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) shown[size_t(b)] = prints(b) ? char32_t(b) : next++;
  return shown;
}

std::string shown(std::string_view bytes) {
  static const auto as = shown_bytes();
  std::string text;
  for (char byte : bytes) append_utf8(text, as[static_cast<unsigned char>(byte)]);
  return text;
}

using TokenNumbers = std::map<std::string, int64_t>;  // of tokens, as files write them
using Pairs = std::vector<std::pair<std::string, std::string>>;

/// What files say; not checked yet.
struct Given {
  std::string name;  ///< begins messages
  TokenNumbers vocabulary;
  Pairs merges;
  std::string merges_name;
  std::map<std::string, int64_t> specials;
  std::set<std::string> late;  ///< of them: BpeParts::late
  Words words = Words::gpt2;
  bool whole_words = false;
};

/// The bytes that a token of a file stands for.
std::string bytes_of(const std::string& token, const Given& given) {
  static const auto bytes = [] {
    std::map<char32_t, char> all;
    auto as = shown_bytes();
    for (size_t b = 0; b < 256; ++b) all[as[b]] = static_cast<char>(b);
    return all;
  }();
  std::string text;
  for (size_t at = 0; at < token.size();) {
    char32_t c = next_code_point(token, at, {given.name});
    auto found = bytes.find(c);
    check_input(found != bytes.end(), Exit::data,
                "{}: token `{}`: {} stands for no byte; expected a byte-level vocabulary",
                given.name, printable(token), describe(c));
    text.push_back(found->second);
  }
  check_input(!text.empty(), Exit::data, "{}: a token is empty; expected bytes", given.name);
  return text;
}

/// Every number from 0 on is one token's.
void check_numbers(const Given& g) {
  std::map<int64_t, std::string> tokens;
  for (auto* list : {&g.vocabulary, &g.specials})
    for (auto& [token, number] : *list) {
      auto same = g.vocabulary.find(token);
      check_input(same == g.vocabulary.end() || same->second == number, Exit::data,
                  "{}: `{}` is token {} and token {}; expected one number", g.name,
                  printable(token), number, same == g.vocabulary.end() ? 0 : same->second);
      auto [at, is_new] = tokens.emplace(number, token);
      check_input(is_new || at->second == token, Exit::data,
                  "{}: {} is the number of `{}` and of `{}`; expected one token each", g.name,
                  number, printable(at->second), printable(token));
    }
  int64_t next = 0;
  while (tokens.contains(next)) ++next;
  check_input(next == std::ssize(tokens), Exit::data,
              "{}: no token has the number {}; expected 0 to {} without gaps", g.name, next,
              std::ssize(tokens) - 1);
}

/// All tokens are made somehow: a file that was cut off would encode otherwise without a word.
void check_made(const BpeParts& parts, const Given& g) {
  if (parts.whole_words) return;  // each is made of the word that it is
  std::vector<bool> made(parts.tokens.size());
  for (size_t i = 0; i < made.size(); ++i) made[i] = parts.tokens[i].size() == 1;
  std::map<std::string, size_t> numbers;
  for (size_t i = 0; i < made.size(); ++i) numbers[parts.tokens[i]] = i;
  for (auto [left, right] : parts.merges)
    made[numbers.at(parts.tokens[size_t(left)] + parts.tokens[size_t(right)])] = true;
  for (auto* list : {&parts.specials, &parts.late})
    for (int32_t special : *list) made[size_t(special)] = true;
  for (size_t i = 0; i < made.size(); ++i)
    check_input(made[i], Exit::data,
                "{}: no merge makes token {}, `{}`; expected a merge for every token that is "
                "neither a byte nor special. Is the file cut off?",
                g.merges_name, i, printable(shown(parts.tokens[i])));
}

std::shared_ptr<const Bpe> checked(const Given& g) {
  check_numbers(g);
  BpeParts parts{.words = g.words, .whole_words = g.whole_words};
  parts.tokens.resize(g.vocabulary.size());
  auto put = [&](int64_t number, std::string bytes) {
    if (size_t(number) >= parts.tokens.size()) parts.tokens.resize(size_t(number) + 1);
    parts.tokens[size_t(number)] = std::move(bytes);
  };
  for (auto& [token, number] : g.vocabulary)
    if (!g.specials.contains(token)) put(number, bytes_of(token, g));
  for (auto& [token, number] : g.specials) {
    check_input(!token.empty(), Exit::data, "{}: a special token is empty", g.name);
    put(number, token);
    (g.late.contains(token) ? parts.late : parts.specials).push_back(int32_t(number));
  }
  if (parts.specials.empty()) std::swap(parts.specials, parts.late);  // as in GPT-2's own
  for (auto byte : shown_bytes()) {
    std::string token;
    append_utf8(token, byte);
    check_input(g.vocabulary.contains(token), Exit::data,
                "{}: `{}` is missing; expected a token for each of the 256 bytes", g.name, token);
  }
  for (size_t i = 0; i < g.merges.size(); ++i) {
    auto& [left, right] = g.merges[i];
    for (auto& token : {left, right, left + right})
      check_input(g.vocabulary.contains(token), Exit::data,
                  "{}: merge {}, `{} {}`: `{}` is not in the vocabulary of {} tokens",
                  g.merges_name, i + 1, printable(left), printable(right), printable(token),
                  g.vocabulary.size());
    parts.merges.emplace_back(int32_t(g.vocabulary.at(left)), int32_t(g.vocabulary.at(right)));
  }
  check_made(parts, g);
  return std::make_shared<Bpe>(std::move(parts));
}

TokenNumbers numbers_in(const nn::JsonReader& vocabulary) {
  auto members = vocabulary.members();
  vocabulary.require(members.size() >= 256 && std::ssize(members) <= most_tokens,
                     fmt::format("has {} tokens; expected 256 to {}", members.size(), most_tokens));
  TokenNumbers numbers;
  for (auto& [token, number] : members) numbers[token] = int64_t(number.number(most_tokens));
  return numbers;
}

std::pair<std::string, std::string> merge_in(const std::string& line, const Given& g) {
  size_t space = line.find(' ');
  bool two = space != line.npos && space > 0 && space + 1 < line.size() &&
             line.find(' ', space + 1) == line.npos;
  check_input(two, Exit::data, "{}: merge {}, `{}`; expected two tokens with a space between",
              g.merges_name, g.merges.size() + 1, printable(line));
  return {line.substr(0, space), line.substr(space + 1)};
}

void read_merges(const std::string& text, Given& g) {
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    bool comment = at == 0 && line.starts_with("#version");
    if (!line.empty() && !comment) g.merges.push_back(merge_in(line, g));
    at = end + 1;
  }
}

/// Files of this kind do not say which tokens are special; by custom they are written like this.
bool looks_special(const std::string& token) {
  return token.size() > 2 && token.starts_with('<') && token.ends_with('>');
}

bool flag_in(const nn::JsonReader& object, const char* key, bool otherwise) {
  return object.has(key) && !object.at(key).is_null() ? object.at(key).flag() : otherwise;
}

/// The Split in front of ByteLevel: Llama 3's.
void check_split(const nn::JsonReader& split) {
  split.require(split.at("type").text() == "Split", "is not of type Split");
  std::string pattern = split.at("pattern").at("Regex").text();
  split.require(
      pattern == llama3_pattern && split.at("behavior").text() == "Isolated" &&
          !flag_in(split, "invert", false),
      fmt::format("cuts words by `{}`; expected the pattern of GPT-2 or Llama 3, isolated",
                  printable(pattern)));
}

/// What would encode another way than Bpe does is refused.
void read_kind(const nn::JsonReader& root, Given& g) {
  auto model = root.at("model"), words = root.at("pre_tokenizer");
  auto absent = [](const nn::JsonReader& object, const char* key) {
    bool given = object.has(key) && !object.at(key).is_null();
    bool empty = given && object.at(key).is_text() && object.at(key).text().empty();
    object.require(!given || empty, fmt::format("has a {}, which is not supported", key));
  };
  if (model.has("type"))
    model.require(model.at("type").text() == "BPE", "has a type other than BPE");
  words.require(!words.is_null(), "is null; expected GPT-2's or Llama 3's");
  if (words.at("type").text() == "Sequence") {
    auto steps = words.at("pretokenizers").elements(8);
    words.require(steps.size() == 2, "has not 2 steps; expected Split and ByteLevel");
    check_split(steps[0]);
    words = steps[1];
    g.words = Words::llama3;
  }
  words.require(words.at("type").text() == "ByteLevel",
                "is not of type ByteLevel; expected GPT-2's or Llama 3's");
  words.require(!flag_in(words, "add_prefix_space", true), "has add_prefix_space; expected false");
  words.require(flag_in(words, "use_regex", true) == (g.words == Words::gpt2),
                "has another use_regex; expected true, or false behind a Split");
  model.require(!flag_in(model, "byte_fallback", false), "has byte_fallback; expected false");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"})
    absent(model, key);
  absent(root, "normalizer");
  g.whole_words = flag_in(model, "ignore_merges", false);
}

}  // namespace

std::shared_ptr<const Bpe> bpe_from_json(const nn::JsonReader& root, const std::string& name) {
  Given g{.name = "tokenizer: " + name, .merges_name = "tokenizer: " + name};
  read_kind(root, g);
  auto model = root.at("model");
  g.vocabulary = numbers_in(model.at("vocab"));
  for (auto& merge : model.at("merges").elements(most_tokens)) {
    if (merge.is_text()) {
      g.merges.push_back(merge_in(merge.text(), g));
      continue;
    }
    auto both = merge.elements(2);
    merge.require(both.size() == 2, "is not a pair of tokens");
    g.merges.emplace_back(both[0].text(), both[1].text());
  }
  if (root.has("added_tokens"))
    for (auto& added : root.at("added_tokens").elements(most_tokens)) {
      for (const char* key : {"lstrip", "rstrip", "single_word"})
        if (added.has(key)) added.at(key).require(!added.at(key).flag(), "is not supported");
      std::string token = added.at("content").text();
      g.specials[token] = int64_t(added.at("id").number(most_tokens));
      if (flag_in(added, "normalized", false)) g.late.insert(token);
    }
  return checked(g);
}

std::shared_ptr<const Bpe> bpe_from_two_files(const std::string& directory) {
  std::string path = directory + "/vocab.json";
  Given g{.name = "tokenizer: " + path};
  g.vocabulary =
      numbers_in({disk().read(path, largest_tokenizer_file), g.name, "the vocabulary", 1});
  std::string merges = directory + "/merges.txt";
  g.merges_name = "tokenizer: " + merges;
  read_merges(disk().read(merges, largest_tokenizer_file), g);
  std::set<std::string> made;
  for (auto& [left, right] : g.merges) made.insert(left + right);
  for (auto& [token, number] : g.vocabulary)
    if (looks_special(token) && !made.contains(token)) g.specials[token] = number;
  std::string added = directory + "/added_tokens.json";
  if (std::ranges::count(disk().list(directory), "added_tokens.json") > 0) {
    nn::JsonReader json(disk().read(added, largest_tokenizer_file), "tokenizer: " + added, "it", 1);
    for (auto& [token, number] : json.members())
      g.specials[token] = int64_t(number.number(most_tokens));
  }
  return checked(g);
}

std::string Bpe::json() const {
  std::vector<std::string> vocabulary, merges, specials;
  std::set<int32_t> special(parts_.specials.begin(), parts_.specials.end()),
      late(parts_.late.begin(), parts_.late.end());
  for (int32_t i = 0; i < int32_t(size()); ++i) {
    std::string number = std::to_string(i), text = parts_.tokens[size_t(i)];
    if (special.contains(i) || late.contains(i))
      specials.push_back(
          fmt::format(R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
                      R"("normalized":{},"special":{}}})",
                      number, nn::quoted(text), late.contains(i), special.contains(i)));
    else vocabulary.push_back(nn::quoted(shown(text)) + ":" + number);
  }
  for (auto [left, right] : parts_.merges)
    merges.push_back(
        nn::quoted(shown(parts_.tokens[size_t(left)]) + " " + shown(parts_.tokens[size_t(right)])));
  const bool llama3 = parts_.words == Words::llama3;
  auto byte_level = [](bool prefix, bool regex) {
    return fmt::format(
        R"({{"type":"ByteLevel","add_prefix_space":{},"trim_offsets":true,"use_regex":{}}})",
        prefix, regex);
  };
  std::string words = byte_level(false, !llama3);
  if (llama3)
    words = R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)" +
            nn::quoted(llama3_pattern) + R"(},"behavior":"Isolated","invert":false},)" + words +
            "]}";
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" +
         join(specials, ",") + R"(],"normalizer":null,"pre_tokenizer":)" + words +
         R"(,"post_processor":null,"decoder":)" + byte_level(true, true) +
         R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,)" +
         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)" +
         fmt::format(R"("byte_fallback":false,"ignore_merges":{},"vocab":{{)", parts_.whole_words) +
         join(vocabulary, ",") + R"(},"merges":[)" + join(merges, ",") + "]}}\n";
}

}  // namespace triax::text
