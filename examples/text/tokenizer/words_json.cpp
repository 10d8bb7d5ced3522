#include <algorithm>

#include "examples/text/tokenizer/words.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::text {
namespace {

using Match = WordSplit::Match;

// In the order of Match.
constexpr const char* matches[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                   "MergedWithNext"};
const WordSplit gpt2_split{std::string(gpt2_pattern)};

/// Returns the pattern that matches a text and nothing else.
std::string escaped(const std::string& text) {
  std::string pattern;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

WordSplit split_from_json(const nn::JsonReader& step) {
  auto pattern = step.at("pattern"), behavior = step.at("behavior");
  auto* match = std::ranges::find(matches, behavior.text());
  behavior.require(match != std::end(matches),
                   fmt::format("is `{}`; expected {}", printable(behavior.text()),
                               join(std::vector<std::string>(matches, std::end(matches)), ", ")));
  return {pattern.has("String") ? escaped(pattern.at("String").text()) : pattern.at("Regex").text(),
          Match(match - matches), flag_in(step, "invert", false)};
}

}  // namespace

bool flag_in(const nn::JsonReader& object, const char* key, bool otherwise) {
  return object.has(key) && !object.at(key).is_null() ? object.at(key).flag() : otherwise;
}

Words words_from_json(const nn::JsonReader& pre_tokenizer) {
  pre_tokenizer.require(!pre_tokenizer.is_null(), "is null; expected ByteLevel");
  std::vector<nn::JsonReader> steps{pre_tokenizer};
  if (pre_tokenizer.at("type").text() == "Sequence")
    steps = pre_tokenizer.at("pretokenizers").elements(64);
  std::vector<WordSplit> splits;
  bool byte_level = false;
  for (auto& step : steps) {
    std::string type = step.at("type").text();
    step.require(!byte_level, fmt::format("is {} behind ByteLevel; expected nothing behind it",
                                          printable(type)));
    byte_level = type == "ByteLevel";
    if (type == "Split") {
      splits.push_back(split_from_json(step));
    } else if (type == "Digits") {
      splits.push_back({flag_in(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"});
    } else {
      step.require(byte_level, fmt::format("is of type {}; expected Split, Digits or ByteLevel",
                                           printable(type)));
      step.require(!flag_in(step, "add_prefix_space", true),
                   "has add_prefix_space; expected false");
      if (flag_in(step, "use_regex", true)) splits.push_back(gpt2_split);
    }
  }
  pre_tokenizer.require(byte_level, "does not end with ByteLevel; expected it");
  try {
    return Words(std::move(splits));
  } catch (const Error& e) {
    pre_tokenizer.require(false, std::string("cuts words in another way: ") + e.what());
    throw;
  }
}

std::string to_json(const Words& words) {
  auto splits = words.splits();
  bool use_regex = !splits.empty() && splits.back() == gpt2_split;
  if (use_regex) splits.pop_back();
  std::string steps;
  for (auto& split : splits)
    steps +=
        fmt::format(R"({{"type":"Split","pattern":{{"Regex":{}}},"behavior":"{}","invert":{}}},)",
                    nn::quoted(split.pattern), matches[size_t(split.match)], split.invert);
  steps += fmt::format(
      R"({{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":{}}})",
      use_regex);
  if (splits.empty()) return steps;
  return R"({"type":"Sequence","pretokenizers":[)" + steps + "]}";
}

}  // namespace triax::text
