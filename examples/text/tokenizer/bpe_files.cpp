#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>

#include "examples/text/tokenizer/bpe.h"
#include "examples/text/tokenizer/words.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::text {
namespace {

/// Returns bytes as files write them: those that print as Latin-1 stand for themselves, the others
/// are U+0100 and following, so that no token holds a space or a control character.
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

using TokenNumbers = std::map<std::string, int64_t>;  // numbers of tokens, as files write them

/// The content of files; not checked yet.
struct Given {
  std::string name;  ///< begins messages
  TokenNumbers vocabulary;
  TokenPairs merges;
  std::string merges_name;
  TokenNumbers added;
  std::set<std::string> late;  ///< those with AddedToken::late
  Words words = {};
  bool whole_words = false, composes = false;
  bool has_characters = false;  ///< as SentencePiece: BpeParts::fallback
  Prefix prefix = Prefix::none;
  std::string json;  ///< BpeParts::json
};

/// Returns the bytes of a token in a file; none if a character of it stands for no byte.
std::optional<std::string> shown_by(const std::string& token, const Given& given) {
  if (given.has_characters)
    return token.find(' ') == token.npos ? std::optional(with_spaces(token)) : std::nullopt;
  static const auto bytes = [] {
    std::map<char32_t, char> all;
    auto as = shown_bytes();
    for (size_t b = 0; b < 256; ++b) all[as[b]] = static_cast<char>(b);
    return all;
  }();
  std::string text;
  for (size_t at = 0; at < token.size();) {
    auto found = bytes.find(next_code_point(token, at, {given.name}));
    if (found == bytes.end()) return {};
    text.push_back(found->second);
  }
  return text;
}

std::string bytes_of(const std::string& token, const Given& given) {
  check_input(!token.empty(), Exit::data, "{}: a token is empty; expected bytes", given.name);
  auto bytes = shown_by(token, given);
  check_input(bytes.has_value(), Exit::data, "{}: token `{}` stands for no bytes; expected {}{}",
              given.name, printable(token),
              given.has_characters ? "no space in it" : "a byte-level vocabulary",
              other_tokenizers);
  return *bytes;
}

/// Checks that every number from 0 on is one token's. Returns how many there are.
size_t check_numbers(const Given& g) {
  std::map<int64_t, std::string> tokens;
  for (auto* list : {&g.vocabulary, &g.added})
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
  return tokens.size();
}

/// Returns the tokens of the 256 bytes.
std::vector<std::string> alphabet(const Given& g) {
  std::vector<std::string> tokens;
  for (char32_t byte : shown_bytes())
    if (g.has_characters) tokens.push_back(fmt::format("<0x{:02X}>", tokens.size()));
    else append_utf8(tokens.emplace_back(), byte);
  return tokens;
}

/// Returns first symbols, and the results of merges; all in the vocabulary.
std::set<std::string> made_in(const Given& g) {
  std::set<std::string> made;
  for (auto& token : alphabet(g)) {
    check_input(g.vocabulary.contains(token), Exit::data,
                "{}: `{}` is missing; expected a token for each of the 256 bytes{}", g.name, token,
                other_tokenizers);
    made.insert(token);
  }
  auto fallback = g.has_characters ? made : std::set<std::string>();  // are never merged
  for (auto& [token, number] : g.vocabulary)
    if (g.has_characters && !token.empty() && token.size() == character_size(token[0]))
      made.insert(token);
  for (size_t i = 0; i < g.merges.size(); ++i) {
    auto& [left, right] = g.merges[i];
    for (auto& token : {left, right, left + right})
      check_input(g.vocabulary.contains(token) && !fallback.contains(token), Exit::data,
                  "{}: merge {}, `{} {}`: `{}` is not in the vocabulary of {} tokens to merge",
                  g.merges_name, i + 1, printable(left), printable(right), printable(token),
                  g.vocabulary.size());
    made.insert(left + right);
  }
  return made;
}

/// True if a word may become this added token, which then stands for the bytes that it shows too.
bool is_ordinary(const std::string& content, const std::set<std::string>& made, const Given& g) {
  bool whole = g.whole_words && g.vocabulary.contains(content) && shown_by(content, g);
  return whole || made.contains(content);
}

std::shared_ptr<const Bpe> checked(const Given& g) {
  BpeParts parts{.words = g.words,
                 .whole_words = g.whole_words,
                 .composes = g.composes,
                 .prefix = g.prefix,
                 .json = g.json};
  parts.tokens.resize(check_numbers(g));
  for (auto& [token, number] : g.vocabulary)
    if (!g.added.contains(token)) parts.tokens[size_t(number)] = bytes_of(token, g);
  auto made = made_in(g);
  for (auto& [token, number] : g.vocabulary)  // a file that was cut off would encode otherwise
    check_input(g.whole_words || made.contains(token) || g.added.contains(token), Exit::data,
                "{}: no merge makes token {}, `{}`; expected a merge for every token that is "
                "neither a byte nor special. Is the file cut off?",
                g.merges_name, number, printable(token));
  bool all_late = g.late.size() == g.added.size();  // as in GPT-2's own: between no others
  for (auto& [content, number] : g.added) {
    check_input(!content.empty(), Exit::data, "{}: a special token is empty", g.name);
    bool ordinary = is_ordinary(content, made, g);
    parts.tokens[size_t(number)] = ordinary ? bytes_of(content, g) : content;
    parts.added.push_back(
        {int32_t(number), content, g.late.contains(content) && !all_late, ordinary});
  }
  if (g.has_characters)
    for (auto& token : alphabet(g)) {
      auto number = int32_t(g.vocabulary.at(token));
      parts.tokens[size_t(number)] = static_cast<char>(parts.fallback.size());
      parts.fallback.push_back(number);
    }
  for (auto& [left, right] : g.merges)
    parts.merges.emplace_back(int32_t(g.vocabulary.at(left)), int32_t(g.vocabulary.at(right)));
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

/// Returns merge `number`, counted from 1, of a line with two tokens; `name` begins messages.
std::pair<std::string, std::string> merge_in(const std::string& line, const std::string& name,
                                             size_t number) {
  size_t space = line.find(' ');
  bool two = space != line.npos && space > 0 && space + 1 < line.size() &&
             line.find(' ', space + 1) == line.npos;
  check_input(two, Exit::data, "{}: merge {}, `{}`; expected two tokens with a space between", name,
              number, printable(line));
  return {line.substr(0, space), line.substr(space + 1)};
}

void read_merge_lines(const std::string& text, Given& g) {
  auto lines = parts_of(text, '\n');
  if (lines[0].starts_with("#version")) lines[0].clear();
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) g.merges.push_back(merge_in(line, g.merges_name, g.merges.size() + 1));
  }
}

/// True for names that are special by custom: files of this kind do not say which tokens are.
bool looks_special(const std::string& token) {
  return token.size() > 2 && token.starts_with('<') && token.ends_with('>');
}

/// Returns the steps of the normalizer; none if it is absent.
std::vector<nn::JsonReader> normalizers(const nn::JsonReader& root) {
  if (!root.has("normalizer") || root.at("normalizer").is_null()) return {};
  auto all = root.at("normalizer");
  if (all.at("type").text() == "Sequence") return all.at("normalizers").elements(64);
  return {all};
}

void refuse_unless(bool known, const nn::JsonReader& normalizer) {
  normalizer.require(known, fmt::format("is a normalizer {}, which is not supported",
                                        printable(normalizer.at("type").text())));
}

/// Returns true if texts are composed. Throws for a normalizer that does anything else.
bool reads_composed(const nn::JsonReader& root) {
  auto steps = normalizers(root);
  for (auto& step : steps) refuse_unless(step.at("type").text() == "NFC", step);
  return !steps.empty();
}

/// Reads where a tokenizer of SentencePiece's kind has spaces: by a Metaspace, or by a normalizer.
void read_spaces(const nn::JsonReader& root, Given& g) {
  auto steps = normalizers(root);
  bool metaspace = root.has("pre_tokenizer") && !root.at("pre_tokenizer").is_null();
  constexpr const char* prepend = R"({"prepend":"▁","type":"Prepend"})";
  constexpr const char* replace = R"({"content":"▁","pattern":{"String":" "},"type":"Replace"})";
  bool replaces = false;
  for (auto& step : steps) {
    std::string known = step.literal();
    refuse_unless(known == replace ? !replaces : known == prepend && g.prefix == Prefix::none,
                  step);
    if (known == prepend) g.prefix = Prefix::all;
    else replaces = true;
  }
  root.require(
      replaces != metaspace && (steps.empty() || replaces),
      "has byte_fallback; expected a Metaspace, or else a normalizer that replaces spaces");
  g.words = Words(std::vector<WordSplit>());
  if (!metaspace) return;
  auto m = root.at("pre_tokenizer");
  m.require(m.at("type").text() == "Metaspace" && m.at("replacement").text() == shown_space,
            fmt::format("is a {}; expected a Metaspace of U+2581", printable(m.at("type").text())));
  std::string scheme = m.has("prepend_scheme")                ? m.at("prepend_scheme").text()
                       : flag_in(m, "add_prefix_space", true) ? "always"
                                                              : "never";
  const std::map<std::string, Prefix> schemes{
      {"always", Prefix::missing}, {"first", Prefix::first_missing}, {"never", Prefix::none}};
  m.require(schemes.contains(scheme),
            fmt::format("is `{}`; expected always, first or never", printable(scheme)));
  g.prefix = schemes.at(scheme);
  if (flag_in(m, "split", true)) g.words = Words({{" ", WordSplit::Match::merged_with_next}});
}

/// Refuses what tokenizers of this kind do not have here, and cuts texts before spaces if no merge
/// reaches across, which is as good as no cut, and faster.
void check_characters(const nn::JsonReader& root, Given& g) {
  auto require = [&](bool fits, const char* what) {
    root.require(fits, fmt::format("has byte_fallback and {}{}", what, other_tokenizers));
  };
  (void)check_numbers(g);  // says which two tokens have one number, before what follows from it
  require(!g.json.empty(), "added tokens whose numbers do not follow those of the vocabulary");
  require(g.late.empty() || normalizers(root).empty(), "added tokens that are normalized");
  require(g.vocabulary.contains(std::string(shown_space)), "no token for U+2581, a space");
  auto crosses = [](auto& merge) {
    return !merge.first.ends_with(shown_space) && merge.second.starts_with(shown_space);
  };
  if (g.words.splits().empty() && !g.whole_words && std::ranges::none_of(g.merges, crosses))
    g.words = Words({{" *[^ ]+| +"}});
}

/// Reads the kind of tokenizer; throws Error 65 for one that encodes in another way than Bpe.
void read_kind(const nn::JsonReader& root, Given& g) try {
  auto model = root.at("model");
  auto absent = [&](const char* key, std::initializer_list<const char*> allowed) {
    bool fits = !model.has(key) || std::ranges::count(allowed, model.at(key).literal()) > 0;
    model.require(fits, fmt::format("has a {}, which is not supported", key));
  };
  if (model.has("type"))
    model.require(model.at("type").text() == "BPE", "has a type other than BPE");
  g.has_characters = flag_in(model, "byte_fallback", false);
  if (g.has_characters) read_spaces(root, g);
  else g.words = words_from_json(root.at("pre_tokenizer"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    absent(key, {"null", "\"\""});
  absent("dropout", {"null", "0.0", "0"});
  g.composes = !g.has_characters && reads_composed(root);
  g.whole_words = flag_in(model, "ignore_merges", false);
} catch (const Error& e) {
  throw e.saying(e.what() + std::string(other_tokenizers));
}

/// Returns true if `tokenizers` gives them the same numbers: it takes those of the vocabulary, and
/// counts on from its end.
bool read_added(const nn::JsonReader& root, Given& g) {
  bool counts_on = true;
  auto next = std::ssize(g.vocabulary);
  for (auto& added : root.at("added_tokens").elements(most_tokens)) {
    for (const char* key : {"lstrip", "rstrip", "single_word"})
      if (added.has(key))
        added.at(key).require(!added.at(key).flag(),
                              std::string("is not supported") + other_tokenizers);
    std::string token = added.at("content").text();
    auto number = int64_t(added.at("id").number(most_tokens));
    bool is_new = g.added.insert_or_assign(token, number).second;
    if (is_new && !g.vocabulary.contains(token)) counts_on &= number == next++;
    if (flag_in(added, "normalized", false)) g.late.insert(token);
  }
  return counts_on;
}

/// True if the vocabulary lacks added tokens that are bytes, or that merges take or make.
bool lacks_added(const Given& g) {
  auto lacks = [&](const std::string& token) {
    return g.added.contains(token) && !g.vocabulary.contains(token);
  };
  return std::ranges::any_of(alphabet(g), lacks) || std::ranges::any_of(g.merges, [&](auto& merge) {
           auto& [left, right] = merge;
           return lacks(left) || lacks(right) || lacks(left + right);
         });
}

}  // namespace

TokenPairs merges_in(const nn::JsonReader& model, const std::string& name) {
  TokenPairs all;
  for (auto& merge : model.at("merges").elements(most_tokens)) {
    if (merge.is_text()) {
      all.push_back(merge_in(merge.text(), name, all.size() + 1));
      continue;
    }
    auto both = merge.elements(2);
    merge.require(both.size() == 2, "is not a pair of tokens");
    all.emplace_back(both[0].text(), both[1].text());
  }
  return all;
}

std::shared_ptr<const Bpe> bpe_from_json(const nn::JsonReader& root, const std::string& text,
                                         const std::string& name) {
  Given g{.name = "tokenizer: " + name, .merges_name = "tokenizer: " + name};
  read_kind(root, g);
  auto model = root.at("model");
  g.vocabulary = numbers_in(model.at("vocab"));
  g.merges = merges_in(model, g.merges_name);
  bool alike = !root.has("added_tokens") || read_added(root, g);
  // Older runs wrote such files: added tokens were only in their own list.
  if (alike && !lacks_added(g)) g.json = text;
  else g.vocabulary.insert(g.added.begin(), g.added.end());
  if (g.has_characters) check_characters(root, g);
  return checked(g);
}

std::shared_ptr<const Bpe> bpe_from_two_files(const std::string& directory) {
  std::string path = directory + "/vocab.json";
  Given g{.name = "tokenizer: " + path};
  g.vocabulary =
      numbers_in({disk().read(path, largest_tokenizer_file), g.name, "the vocabulary", 1});
  std::string merges = directory + "/merges.txt";
  g.merges_name = "tokenizer: " + merges;
  read_merge_lines(disk().read(merges, largest_tokenizer_file), g);
  std::set<std::string> made;
  for (auto& [left, right] : g.merges) made.insert(left + right);
  for (auto& [token, number] : g.vocabulary)
    if (looks_special(token) && !made.contains(token)) g.added[token] = number;
  std::string added = directory + "/added_tokens.json";
  if (std::ranges::count(disk().list(directory), "added_tokens.json") > 0) {
    nn::JsonReader json(disk().read(added, largest_tokenizer_file), "tokenizer: " + added, "it", 1);
    for (auto& [token, number] : json.members())
      g.added[token] = int64_t(number.number(most_tokens));
  }
  return checked(g);
}

std::string Bpe::json() const { return parts_.json.empty() ? document(Form::file) : parts_.json; }

std::string Bpe::identity() const { return document(Form::identity); }

std::string Bpe::document(Form form) const {
  std::vector<std::string> vocabulary, merges, added;
  std::map<int32_t, const AddedToken*> added_at;
  for (const AddedToken& a : parts_.added) added_at[a.token] = &a;
  for (int32_t i = 0; i < int32_t(size()); ++i) {
    std::string number = std::to_string(i), content = shown(parts_.tokens[size_t(i)]);
    bool listed = true;
    if (auto found = added_at.find(i); found != added_at.end()) {
      const AddedToken& a = *found->second;
      added.push_back(
          fmt::format(R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
                      R"("normalized":{},"special":{}}})",
                      number, nn::quoted(a.content), a.late, !a.late));
      listed = form == Form::file || (a.ordinary && a.content != parts_.tokens[size_t(i)]);
      content = a.content;
    }
    if (listed) vocabulary.push_back(nn::quoted(content) + ":" + number);
  }
  for (auto [left, right] : parts_.merges)
    merges.push_back(
        nn::quoted(shown(parts_.tokens[size_t(left)]) + " " + shown(parts_.tokens[size_t(right)])));
  std::string normalizer = parts_.composes ? R"({"type":"NFC"})" : "null";
  if (has_characters())  // for an identity alone: such a file is written as it was read
    normalizer = fmt::format("\"{} {}\"", int(parts_.prefix), join(parts_.fallback, " "));
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" +
         join(added, ",") + R"(],"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
         to_json(parts_.words) +
         R"(,"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)" +
         R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,)" +
         R"("unk_token":null,)" +
         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)" +
         fmt::format(R"("byte_fallback":false,"ignore_merges":{},"vocab":{{)", parts_.whole_words) +
         join(vocabulary, ",") + R"(},"merges":[)" + join(merges, ",") + "]}}\n";
}

}  // namespace triax::text
