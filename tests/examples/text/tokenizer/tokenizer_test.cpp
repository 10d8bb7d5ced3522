#include "examples/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace triax::text::tokenizer_test {

using namespace test;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (int v : values) text.push_back(static_cast<char>(v));
  return text;
}

TEST(Tokenizer, NumbersSortedCharacters) {
  auto t = Tokenizer::from_text("banana €\U0001F600é");
  EXPECT_EQ(t.size(), 7);
  EXPECT_EQ(t.encode(" abné€\U0001F600"), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Tokenizer, TextComesBack) {
  // The first and last character of every length of UTF-8, and those around the surrogates.
  std::string text =
      bytes({0}) + "\x7F" + "\u0080\u07FF\u0800\uD7FF\uE000\uFFFF" + "\U00010000\U0010FFFF\n\"\\";
  auto t = Tokenizer::from_text(text);
  EXPECT_EQ(t.size(), 13);
  EXPECT_EQ(t.decode(t.encode(text)), text);
  auto again = Tokenizer::from_json(t.json(), "x");
  EXPECT_EQ(again.decode(t.encode(text)), text);
  EXPECT_EQ(again.hash(), t.hash());
}

TEST(Tokenizer, HashIsFnv1aOfTheVocabulary) {
  // FNV-1a of the bytes 61 00 00 00, by hand.
  uint64_t hash = (0xcbf29ce484222325u ^ 0x61) * 0x100000001b3u;
  for (int i = 0; i < 3; ++i) hash *= 0x100000001b3u;
  char expected[17];
  std::snprintf(expected, sizeof expected, "%016lx", static_cast<unsigned long>(hash));
  EXPECT_EQ(Tokenizer::from_text("aaa").hash(), expected);
  EXPECT_NE(Tokenizer::from_text("ab").hash(), Tokenizer::from_text("ac").hash());
}

TEST(Tokenizer, NamesTheUnknownCharacter) {
  auto t = Tokenizer::from_text("abc");
  EXPECT_EQ(error_of([&] { t.encode("abc\n"); }, Exit::data),
            "tokenizer: character '\\n' U+000A at byte 3 is not in the vocabulary of 3 characters");
  EXPECT_EQ(error_of([&] { t.encode("a\u20AC"); }, Exit::data),
            "tokenizer: character '\\u{20ac}' U+20AC at byte 1 is not in the vocabulary of 3 "
            "characters");
}

TEST(Tokenizer, RefusesNumbersThatAreNoTokens) {
  auto t = Tokenizer::from_text("abc");
  for (int32_t token : {-1, 3}) {
    std::vector<int32_t> tokens{0, token};
    EXPECT_EQ(error_of([&] { t.decode(tokens); }, Exit::data),
              "tokenizer: " + std::to_string(token) + " is no token; expected 0 to 2");
  }
}

TEST(Tokenizer, RefusesWhatIsNotUtf8) {
  struct Case {
    std::string text;
    const char* message;
  };
  const Case cases[] = {
      {"ab\x80", "byte 2 is 0x80: a continuation byte without a lead byte"},
      {bytes({0xC0, 0xAF}), "byte 0 is 0xC0: the lead byte of an overlong form"},
      {bytes({0xE0, 0x9F, 0xBF}), "byte 0 is 0xE0: the lead byte of an overlong form"},
      {bytes({0xF0, 0x8F, 0xBF, 0xBF}), "byte 0 is 0xF0: the lead byte of an overlong form"},
      {"a" + bytes({0xED, 0xA0, 0x80}), "byte 1 is 0xED: the lead byte of a surrogate"},
      {bytes({0xF4, 0x90, 0x80, 0x80}), "byte 0 is 0xF4: the lead byte of a value past U+10FFFF"},
      {bytes({0xF5, 0x80, 0x80, 0x80}), "byte 0 is 0xF5: no byte of UTF-8"},
      {bytes({0xFF}), "byte 0 is 0xFF: no byte of UTF-8"},
      {bytes({0xE2, 0x82, 'a'}), "byte 2 is 0x61: not the continuation byte"},
      {"a" + bytes({0xE2, 0x82}),
       "byte 1 is 0xE2: the lead byte of a character that the text ends"},
  };
  auto t = Tokenizer::from_text("ab");
  for (const Case& c : cases) {
    expect_data_error([&] { Tokenizer::from_text(c.text); }, {c.message});
    expect_data_error([&] { t.encode(c.text); }, {"byte"});
  }
  expect_data_error([] { Tokenizer::from_text(""); }, {"the text is empty"});
}

TEST(Tokenizer, RefusesDamagedJson) {
  auto document = [](const std::string& format, const std::string& version,
                     const std::string& characters) {
    return "{\"format\":" + format + ",\"version\":" + version + ",\"characters\":" + characters +
           "}";
  };
  const std::string format = "\"triax-characters\"";
  EXPECT_EQ(Tokenizer::from_json(document(format, "1", "\"ab\""), "f").size(), 2);
  const std::string damaged[] = {
      "",
      "[]",
      "{",
      std::string(100000, '['),
      document("\"other\"", "1", "\"ab\""),
      document(format, "2", "\"ab\""),
      document(format, "\"1\"", "\"ab\""),
      document(format, "1", "\"\""),
      document(format, "1", "[97]"),
      document(format, "1", "\"ba\""),
      document(format, "1", "\"aa\""),
      document(format, "1", "\"\\ud800\""),
      document(format, "1", "\"a\x80\""),
      document(format, "1", "\"ab\"") + "x",
      "{\"format\":" + format + ",\"version\":1}",
  };
  for (const std::string& json : damaged) {
    expect_data_error([&] { Tokenizer::from_json(json, "run/t.json"); }, {"run/t.json"});
  }
}

}  // namespace triax::text::tokenizer_test
