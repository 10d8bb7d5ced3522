#include "examples/text/tokenizer/words.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/check.h"
#include "triax/core/random.h"

namespace triax::text::words_test {

using namespace test;

using Lengths = std::vector<int64_t>;

/// Holds a pre-tokenizer and what `tokenizers` cuts each text into (tests/fixtures/make_words.py).
struct Expected {
  std::string name;
  Words words;
  std::vector<Lengths> lengths;  ///< for each text: bytes of its words; negative: of no word
};
struct Fixture {
  std::vector<std::string> texts;
  std::vector<Expected> all;

  Fixture() {
    std::istringstream lines(read_bytes(TRIAX_SOURCE_DIR "/tests/fixtures/words.jsonl"));
    std::string line;
    std::getline(lines, line);
    nn::JsonReader first(line, "words.jsonl", "line", 4);
    for (auto& text : first.at("texts").elements(100)) texts.push_back(text.text());
    while (std::getline(lines, line)) {
      nn::JsonReader root(line, "words.jsonl", "line", 8);
      all.push_back({root.at("name").text(), words_from_json(root.at("pre_tokenizer")), {}});
      for (auto& text : root.at("words").elements(100)) {
        all.back().lengths.emplace_back();
        for (auto& length : text.elements(10'000))
          all.back().lengths.back().push_back(int64_t(length.real()));
      }
    }
  }
};

Lengths lengths_of(WordReader& reader, size_t begin, size_t end) {
  Lengths lengths;
  size_t at = begin;
  auto pass = [&](size_t to, int64_t sign) {
    if (to > at) lengths.push_back(sign * int64_t(to - at));
    at = to;
  };
  reader.read({begin, end}, [&](size_t from, size_t to) { pass(from, -1), pass(to, 1); });
  pass(end, -1);
  return lengths;
}

TEST(Words, AreThoseOfTokenizersForThePatternsOfManyModels) {
  Fixture fixture;
  ASSERT_GE(fixture.all.size(), 25u);
  for (auto& [name, words, lengths] : fixture.all)
    for (size_t i = 0; i < fixture.texts.size(); ++i) {
      SCOPED_TRACE(name);
      const std::string& text = fixture.texts[i];
      WordReader reader(words, text, {});
      ASSERT_EQ(lengths_of(reader, 0, text.size()), lengths[i]) << to_json(words);
    }
}

TEST(Words, AreTheSameOfWhatIsWrittenAgain) {
  for (auto& expected : Fixture().all) {
    std::string json = to_json(expected.words);
    auto again = words_from_json({json, expected.name, "it", 8});
    EXPECT_EQ(again.splits(), expected.words.splits());
    EXPECT_EQ(to_json(again), json);
  }
}

// Words of the beginning of a text stay the same whatever follows, and so do those behind them.
TEST(Words, OfABeginningStayTheSame) {
  Fixture fixture;
  for (auto& [name, words, lengths] : fixture.all) {
    size_t cuts = 0;
    for (uint64_t i = 0; i < 200; ++i) {
      const std::string& all = fixture.texts[i % fixture.texts.size()];
      auto draw = [&](uint64_t n, size_t below) {
        return last_character_end(
            std::string_view(all).substr(0, size_t(random::uniform(3, i, n) * double(below))));
      };
      size_t begin = draw(0, all.size() - 100), end = begin + 100;
      end = last_character_end(std::string_view(all).substr(0, end));
      size_t seen = begin + last_character_end(std::string_view(all).substr(begin, draw(1, 100)));
      WordReader reader(words, all, {});
      Lengths whole = lengths_of(reader, begin, end), parts;
      size_t at = begin;
      size_t cut = reader.read({begin, seen, true}, [&](size_t from, size_t to) {
        if (from > at) parts.push_back(-int64_t(from - at));
        parts.push_back(int64_t(to - from));
        at = to;
      });
      ASSERT_LE(at, cut);
      ASSERT_LE(cut, seen);
      if (cut > at) parts.push_back(-int64_t(cut - at));
      Lengths rest = lengths_of(reader, cut, end);
      if (cut > at && !rest.empty() && rest[0] < 0)
        parts.back() += rest[0], rest.erase(rest.begin());
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, whole) << name << ": " << begin << " " << cut << " " << seen << " " << end;
      cuts += cut > begin;
    }
    EXPECT_TRUE(cuts > 5 || name == "nothing") << name;
  }
}

Words splitting(const std::string& pattern) { return Words({{pattern}}); }

TEST(Words, RefusesPatternsThatAreReadInOtherWays) {
  auto refuses = [](const std::string& pattern, const std::string& part) {
    expect_data_error([&] { splitting(pattern); }, {"pattern `" + pattern, part});
  };
  refuses("^a", "has `^` at byte 0, which is not supported");
  refuses("a(?<=b)", "`(?<`");
  refuses("a(?<!b)c", "`(?<`");
  refuses("(?i)a|b", "`(?i`");
  refuses("(?m:.)", "`(?m`");
  refuses("(*UTF)a", "`(*U`");
  for (std::string c : {"b", "B", "A", "G", "K", "Z", "z", "R", "X", "h", "1", "k"})
    refuses("a\\" + c, "has `\\" + c + "` at byte 1");
  refuses("(a", "a group without end");
  refuses("a)", "an unmatched `)`");
  refuses("[a", "a set without end");
  refuses("[]", "an empty set");
  refuses("[]a]", "an empty set");
  refuses("[[:alpha:]]", "such a set in a set");
  refuses("[a[^b]]", "such a set in a set");
  refuses("[a&&b]", "`&&`");
  refuses("[^a&&[^b]]", "`&&`");
  refuses("[^\\W]", "`\\W`");
  refuses("*a", "nothing to repeat");
  refuses("a**", "a repetition of a repetition");
  refuses("a{2}{3}", "a repetition of a repetition");
  refuses("a{2}?", "`?` behind an exact number");
  refuses("(?i:\\p{Lu})", "where case is ignored");
  refuses("(?i:ss)", "other case");
  refuses("(?i:\u00DF)", "other case");
  refuses("(?i:x\u00DF)", "other case");
  refuses("(?i:[\u00DF])", "other case");
  refuses("\\pL", "a property without `{`");
  refuses("\\p{L", "no `}` of a property");
  refuses("\\p{Foo}", "unknown property");
  refuses("\\xE9", "a number of no character");
  refuses("\\u12", "a number of no character");
  refuses("a\\", "no character behind `\\`");
  refuses("a*", "matches where there is nothing");
  refuses("[z-a]", "range out of order");
  refuses(std::string(60, '(') + "a", "too many groups");
  refuses(std::string(60, '[') + "a", "too many sets");
}

TEST(Words, RefusesNewCharactersThatAPatternNames) {
  auto read = [](const std::string& pattern, const std::string& text) {
    Words words = splitting(pattern);
    WordReader(words, text, {"text"});
  };
  const std::string shaking_face = "a \U0001FAE8", tje = "a \u1C89";
  for (const char* pattern :
       {"[\U0001F300-\U0001FAFF]", "[\\x{1F300}-\\x{1FAFF}]", "\U0001FAE8", "\\x{1FAE8}+"})
    expect_error([&] { read(pattern, shaking_face); }, {"text: byte 2: U+1FAE8", "a pattern names"},
                 Exit::data);
  expect_error([&] { read("\\p{Cyrillic}+", tje); }, {"text: byte 2: U+1C89"}, Exit::data);
  for (const char* pattern : {"\\p{L}+|\\s", "[^\\s\\p{L}]+", "[\u4E00-\u9FA5]+", "x-y"}) {
    read(pattern, shaking_face);
    read(pattern, tje);
  }
  read("\\p{Han}+", shaking_face);
  // Ranges may begin with a character of ASCII; a symbol is of no script that a pattern names.
  const std::string pepet = "a \u0897";
  for (const char* pattern : {"[!-\u0FFF]+", "[\\x{0}-\u0FFF]+"})
    expect_error([&] { read(pattern, pepet); }, {"text: byte 2: U+0897"}, Exit::data);
  for (const char* pattern : {"[\\-\u0FFF]+", "[-\u0FFF]+", "[!-\u4E00]+"}) read(pattern, pepet);
  read("[\\p{Hiragana}\\p{Cyrillic}]+", shaking_face);
}

// After an escaped backslash no number of a character begins.
TEST(Words, APatternMayNameABackslash) {
  Words words = splitting(R"([\\x{S]+)");
  const std::string text = R"(ab\x{cd)";
  WordReader reader(words, text, {});
  EXPECT_EQ(lengths_of(reader, 0, text.size()), (Lengths{2, 3, 2}));
}

TEST(Words, OfAnyLength) {
  const std::string text(1'000'000, 'a');
  for (const char* pattern : {R"(\p{L}+)", "(?:\\p{L}\\p{M}?)+", "(?:a|b|c)+"}) {
    Words words = splitting(pattern);
    WordReader reader(words, text, {});
    EXPECT_EQ(lengths_of(reader, 0, text.size()), Lengths{1'000'000}) << pattern;
  }
}

TEST(Words, APatternThatTakesTooLongIsAnError) {
  std::string text(3000, 'a');
  Words words = splitting("(?:a+)+[bc]");
  WordReader reader(words, text, {"data: f", 100});
  expect_data_error([&] { lengths_of(reader, 0, text.size()); },
                    {"data: f: byte 100: pattern `(?:a+)+[bc]`: match limit exceeded"});
}

TEST(Words, RefusesWhatIsNotUtf8) {
  Words words;
  expect_data_error(
      [&] {
        WordReader(words, "ab \xFF", {"data: f", 100});
      },
      {"data: f: byte 103 is 0xFF: no byte of UTF-8; expected UTF-8"});
}

}  // namespace triax::text::words_test
