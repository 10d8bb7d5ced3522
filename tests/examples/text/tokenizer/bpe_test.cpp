#include "examples/text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <sstream>

#include "examples/text/tokenizer/utf8.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/random.h"

namespace triax::text::bpe_test {

using namespace test;

// What `tokenizers` made (tests/fixtures/make_bpe.py).
const std::string fixture = TRIAX_SOURCE_DIR "/tests/fixtures/bpe";

struct Encoding {
  std::string text;
  std::vector<int32_t> tokens;
};
std::vector<Encoding> encodings(const std::string& folder = fixture) {
  std::vector<Encoding> all;
  std::istringstream lines(read_bytes(folder + "/encodings.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    nn::JsonReader root(line, "encodings", "line", 2);
    all.push_back({root.at("text").text(), {}});
    for (int64_t token : root.at("ids").sizes(1000)) all.back().tokens.push_back(int32_t(token));
  }
  return all;
}

Tokenizer from_file() {
  return Tokenizer::from_json(read_bytes(fixture + "/tokenizer.json"), "tokenizer.json");
}

/// A directory with files of the fixture.
struct Copies : TemporaryDirectory {
  explicit Copies(std::initializer_list<const char*> names) {
    for (std::string name : names) {
      std::string to = name.substr(name.rfind('/') + 1);
      disk().write(*this / to, read_bytes(fixture + "/" + name));
    }
  }
};

TEST(Bpe, EncodesAsTokenizersDoes) {
  Copies two({"vocab.json", "merges.txt"});
  Tokenizer two_files = read_tokenizer(two.path()), one_file = from_file(),
            of_2019 = read_tokenizer(fixture + "/gpt2");
  Tokenizer again = Tokenizer::from_json(one_file.json(), "again");
  auto all = encodings();
  ASSERT_GT(all.size(), 300u);
  for (auto& [text, tokens] : all)
    for (const Tokenizer* t : {&two_files, &one_file, &of_2019, &again}) {
      EXPECT_EQ(t->encode(text), tokens) << printable(text);
      EXPECT_EQ(t->decode(tokens), text);
    }
  EXPECT_EQ(two_files.size(), 447);
  EXPECT_EQ(two_files.hash(), one_file.hash());
  EXPECT_EQ(of_2019.hash(), one_file.hash());
  EXPECT_EQ(two_files.hash(), again.hash());
}

TEST(Bpe, EncodesAsTokenizersDoesWithTheWordsOfLlama3) {
  Tokenizer of_file = read_tokenizer(fixture + "/llama3");
  Tokenizer again = Tokenizer::from_json(of_file.json(), "again");
  auto all = encodings(fixture + "/llama3");
  ASSERT_GT(all.size(), 100u);
  for (auto& [text, tokens] : all)
    for (const Tokenizer* t : {&of_file, &again}) {
      EXPECT_EQ(t->encode(text), tokens) << printable(text);
      EXPECT_EQ(t->decode(tokens), text);
    }
  EXPECT_EQ(of_file.json(), again.json());
}

/// Bytes of the beginning of a text whose tokens stay the same whatever follows.
size_t cut_of(const Tokenizer& t, std::string_view text) {
  std::vector<int32_t> tokens;
  return t.encode({.text = text, .source = {}, .goes_on = true}, tokens);
}

// Where a text is cut in two must not change its tokens, whatever follows.
void expect_equal_tokens_of_parts(const Tokenizer& t, const std::string& folder) {
  std::string all;
  for (auto& e : encodings(folder)) all += e.text;
  for (uint64_t i = 0; i < 3000; ++i) {
    auto begin = size_t(random::uniform(1, i, 0) * double(all.size() - 200));
    while ((all[begin] & 0xC0) == 0x80) ++begin;
    std::string text = all.substr(begin, 200);
    text.resize(last_character_end(text));
    std::string_view whole = text;
    auto seen = whole.substr(0, size_t(random::uniform(1, i, 1) * double(whole.size())));
    std::vector<int32_t> tokens;
    size_t cut = t.encode({.text = seen, .source = {}, .goes_on = true}, tokens);
    ASSERT_LE(cut, seen.size());
    t.encode({.text = whole.substr(cut), .source = {}, .is_rest = cut > 0}, tokens);
    ASSERT_EQ(tokens, t.encode(whole)) << printable(text) << " cut at " << cut;
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

// A space before a text, or before what is behind an added token, and U+2581 as a space; characters
// that are no token become bytes.
TEST(Bpe, EncodesAsTokenizersDoesWithSentencePiecesCharacters) {
  for (const char* name : {"prepend", "always", "first", "never"}) {
    std::string folder = fixture + "/pieces/" + name;
    Tokenizer t = read_tokenizer(folder);
    EXPECT_EQ(t.json(), read_bytes(folder + "/tokenizer.json")) << name;
    auto all = encodings(folder);
    ASSERT_GT(all.size(), 80u);
    for (auto& [text, tokens] : all) EXPECT_EQ(t.encode(text), tokens) << name << printable(text);
    EXPECT_EQ(t.decode(t.encode("a the ñ")), name == std::string("never") ? "a the ñ" : " a the ñ");
    expect_equal_tokens_of_parts(t, folder);
    EXPECT_EQ(t.decode(std::vector{t.token("\n").value()}), "\n");
    EXPECT_EQ(t.hash(), Tokenizer::from_json(t.json() + "\n", "again").hash());
  }
  EXPECT_NE(read_tokenizer(fixture + "/pieces/prepend").hash(),
            read_tokenizer(fixture + "/pieces/first").hash());
  // `A` as a letter, and as a byte that is no letter.
  std::string json = read_bytes(fixture + "/pieces/first/tokenizer.json");
  std::string swapped = replaced(replaced(json, "\"A\":", "\"was\":"), "\"<0x41>\":", "\"A\":");
  EXPECT_NE(Tokenizer::from_json(replaced(swapped, "\"was\":", "\"<0x41>\":"), "other").hash(),
            Tokenizer::from_json(json, "one").hash());
}

// Added tokens that have the first numbers, that are bytes and merged tokens as well, or that spell
// such tokens otherwise; and a post-processor, of which nothing is known here.
TEST(Bpe, ReadsAddedTokensAsTokenizersDoesAndWritesTheFileThatItRead) {
  for (const char* name : {"first", "bytes", "otherwise"}) {
    std::string folder = fixture + "/added/" + name;
    Tokenizer t = read_tokenizer(folder);
    EXPECT_EQ(t.json(), read_bytes(folder + "/tokenizer.json")) << name;
    auto all = encodings(folder);
    ASSERT_EQ(all.size(), 60u);
    for (auto& [text, tokens] : all) EXPECT_EQ(t.encode(text), tokens) << name << printable(text);
    expect_equal_tokens_of_parts(t, folder);
  }
  auto both = read_tokenizer(fixture + "/added/bytes");
  auto n = both.encode("\u00F1");
  ASSERT_EQ(n.size(), 1u);
  EXPECT_EQ(both.decode(n), "\xF1");  // as `tokenizers` has it
  EXPECT_EQ(read_tokenizer(fixture + "/llama3").json(),
            read_bytes(fixture + "/llama3/tokenizer.json"));
}

// `tokenizers` takes the number of an added token from the vocabulary, or counts on from its end.
TEST(Bpe, WritesWhatOlderRunsWroteSoThatTokenizersReadsIt) {
  std::string folder = fixture + "/added/old";
  Tokenizer old = read_tokenizer(folder);
  std::string now = old.json();
  EXPECT_NE(now, read_bytes(folder + "/tokenizer.json"));
  Tokenizer again = Tokenizer::from_json(now, "again");
  EXPECT_EQ(again.json(), now);
  EXPECT_EQ(again.hash(), old.hash());
  for (auto& [text, tokens] : encodings(folder))
    for (const Tokenizer* t : {&old, &again}) {
      EXPECT_EQ(t->encode(text), tokens) << printable(text);
      EXPECT_EQ(t->decode(tokens), text);
    }
  nn::JsonReader root(now, "now", "it", deepest_tokenizer);
  auto added = root.at("added_tokens").elements(10);
  ASSERT_EQ(added.size(), 6u);
  for (auto& token : added)
    EXPECT_EQ(root.at("model").at("vocab").at(token.at("content").text().c_str()).size(),
              token.at("id").size());
}

// Two files do not say how words are cut.
TEST(Bpe, TokenizerJsonIsPreferred) {
  Copies both({"vocab.json", "merges.txt", "llama3/tokenizer.json"});
  EXPECT_EQ(read_tokenizer(both.path()).hash(), read_tokenizer(fixture + "/llama3").hash());
  write_bytes(both / "tokenizer.json", "{\"model\": {}, \"pre_tokenizer\": null}");
  expect_data_error([&] { read_tokenizer(both.path()); },
                    {both / "tokenizer.json", "expected ByteLevel"});
}

TEST(Bpe, LearnsTheMergesOfTokenizers) {
  std::string text = read_bytes(fixture + "/text.txt");
  EXPECT_EQ(learn_bpe(text, 447).hash(), from_file().hash());
  EXPECT_EQ(learn_bpe(text, 5000).hash(), from_file().hash());  // the others occur once
  auto few = learn_bpe(text, 300);
  EXPECT_EQ(few.size(), 300);
  EXPECT_EQ(few.decode(few.encode(text)), text);
  EXPECT_EQ(learn_bpe(text, 257).encode("ab").size(), 2u);
}

TEST(Bpe, TakesTheSmallestPairOfThoseThatOccurEquallyOften) {
  // Of 256 bytes a is 64, b 65, c 66, d 67; the first merge is 256.
  EXPECT_EQ(learn_bpe("cdab cdab", 258).encode("abcd"), (std::vector<int32_t>{256, 66, 67}));
  EXPECT_EQ(learn_bpe("cdab cdab cd", 258).encode("abcd"), (std::vector<int32_t>{64, 65, 256}));
  EXPECT_EQ(learn_bpe("abc", 300).size(), 257);  // nothing occurs twice
}

TEST(Bpe, LearnsNothingAcrossTheEndOfADocument) {
  auto t = learn_bpe("ab<|endoftext|>ab<|endoftext|>ab", 300);
  EXPECT_EQ(t.size(), 258);
  EXPECT_EQ(t.encode("ab<|endoftext|>ab"), (std::vector<int32_t>{256, 257, 256}));
}

TEST(Bpe, CutsWhereTokensEnd) {
  Tokenizer t = from_file();
  expect_equal_tokens_of_parts(t, fixture);
  expect_equal_tokens_of_parts(read_tokenizer(fixture + "/llama3"), fixture + "/llama3");
  EXPECT_EQ(cut_of(t, "one two three four five six"), 13u);  // four may end in a special token
  EXPECT_EQ(cut_of(t, "one"), 0u);
  EXPECT_EQ(cut_of(t, ""), 0u);
}

TEST(Bpe, EncodesAWordOfAnyLength) {
  Tokenizer t = learn_bpe("aaaaaaaaaaaaaaaa aaaaaaaaaaaaaaaa", 270);
  std::string text(300'000, 'a');
  EXPECT_EQ(t.decode(t.encode(text)), text);
}

TEST(Bpe, RefusesWhatIsNotUtf8) {
  Tokenizer t = from_file();
  EXPECT_EQ(error_of(
                [&] {
                  t.encode("ab \xFF", {"data: f", 100});
                },
                Exit::data),
            "data: f: byte 103 is 0xFF: no byte of UTF-8; expected UTF-8");
  expect_data_error([&] { t.encode("ab\xC3"); }, {"byte 2", "that the text ends in"});
  expect_data_error([&] { learn_bpe("ab\xC3", 300); }, {"byte 2"});
  expect_data_error([&] { (void)t.decode(std::vector<int32_t>{447}); }, {"expected 0 to 446"});
}

/// The fixture's with one more added token, 447.
std::string with_added(const char* content, bool normalized) {
  return replaced(read_bytes(fixture + "/tokenizer.json"), "\"added_tokens\":[",
                  fmt::format(R"("added_tokens":[{{"id":447,"content":"{}","normalized":{}}},)",
                              content, normalized));
}

TEST(Bpe, FindsNormalizedTokensBetweenTheOthersAsTokenizersDoes) {
  using Ids = std::vector<int32_t>;
  auto early = Tokenizer::from_json(with_added("ab<|", false), "early");
  auto late = Tokenizer::from_json(with_added("ab<|", true), "late");
  auto again = Tokenizer::from_json(late.json(), "again");
  Ids rest = from_file().encode("endoftext|>"), early_ids{87, 447}, late_ids{87};
  early_ids.insert(early_ids.end(), rest.begin(), rest.end());
  for (int32_t id : from_file().encode("ab")) late_ids.push_back(id);
  late_ids.push_back(446);
  EXPECT_EQ(early.encode("xab<|endoftext|>"), early_ids);
  for (const Tokenizer& t : {late, again}) {
    EXPECT_EQ(t.encode("xab<|endoftext|>"), late_ids);
    EXPECT_EQ(t.encode("<|endoftext|>ab<|x"), (Ids{446, 447, 87}));
  }
  EXPECT_NE(early.hash(), late.hash());
  // What a text ends with may become the token.
  auto wordy = Tokenizer::from_json(with_added("one two three four five six", true), "wordy");
  std::string before = "It was long ago that someone counted:";
  EXPECT_EQ(cut_of(wordy, before + " one two three four five s<|end"), 28u);  // behind `someone`
}

TEST(Bpe, TakesAddedTokensBesideTwoFiles) {
  Copies two({"vocab.json", "merges.txt"});
  disk().write(two / "added_tokens.json", R"({"<pad>": 447})");
  EXPECT_EQ(read_tokenizer(two.path()).encode("x<pad>"), (std::vector<int32_t>{87, 447}));
  disk().remove(two / "added_tokens.json");
  disk().write(two / "added_tokens.json", R"({"<pad>": -1})");
  expect_data_error(
      [&] { read_tokenizer(two.path()); },
      {two / "added_tokens.json", "<pad> of it is not a number from 0 to 4194304: -1"});
}

TEST(Bpe, RefusesDamagedFiles) {
  std::string vocab = read_bytes(fixture + "/vocab.json");
  std::string merges = read_bytes(fixture + "/merges.txt");
  auto refuses = [&](const std::string& v, const std::string& m, const std::string& part) {
    TemporaryDirectory dir;
    disk().write(dir / "vocab.json", v);
    disk().write(dir / "merges.txt", m);
    expect_data_error([&] { read_tokenizer(dir.path()); }, {dir.path(), part});
  };
  refuses("", merges, "does not start with an open brace");
  refuses(vocab.substr(0, 1000), merges, "not JSON at byte");
  refuses("{\"a\": 0}", merges, "expected 256 to");
  refuses(replaced(vocab, "\"a\": 64", "\"a\": \"64\""), merges, "a of the vocabulary is not a");
  refuses(replaced(vocab, "\"a\": 64", "\"a\": 65"), merges, "65 is the number of");
  refuses(replaced(vocab, "\"a\": 64", "\"aa\": 64"), merges, "`a` is missing");
  refuses(replaced(vocab, "446", "999"), merges, "no token has the number 446");
  refuses(replaced(vocab, "\"a\": 64", "\"\\u4e00\": 64"), merges, "stands for no byte");
  refuses(vocab, merges + "q q\n", "`qq` is not in the vocabulary of 447 tokens");
  refuses(vocab, merges + "zzz a\n", "`zzz` is not in the vocabulary");
  refuses(vocab, merges + "three words here\n", "expected two tokens");
  refuses(vocab, merges + "one\n", "expected two tokens");
  refuses(vocab, merges.substr(0, merges.size() / 2), "");
  refuses(vocab, merges.substr(0, merges.rfind('\n', merges.size() - 2) + 1), "Is the file cut");
  refuses(vocab, "", "Is the file cut off?");
  TemporaryDirectory empty;
  expect_error([&] { read_tokenizer(empty.path()); }, {empty.path(), "no vocab.json"},
               Exit::not_found);
  disk().write(empty / "vocab.json", vocab);
  expect_error([&] { read_tokenizer(empty.path()); }, {"merges.txt", "No such file"},
               Exit::not_found);
}

TEST(Bpe, ComposesTextsWhereTheTokenizerDoes) {
  std::string json = read_bytes(fixture + "/tokenizer.json");
  const std::string nfc = "\"normalizer\":{\"type\":\"NFC\"}";
  auto plain = from_file(),
       composing = Tokenizer::from_json(replaced(json, "\"normalizer\":null", nfc), "t");
  EXPECT_NE(composing.hash(), plain.hash());
  EXPECT_NE(composing.json().find(nfc), std::string::npos);
  EXPECT_EQ(Tokenizer::from_json(composing.json(), "again").hash(), composing.hash());
  // A letter and its marks, a singleton, Hangul of parts, marks in another order, a composition
  // that is excluded, and a mark behind a special token, which nothing crosses.
  const std::pair<std::string, std::string> texts[] = {
      {"cafe\u0301 is", "caf\u00e9 is"},
      {"\u212b and \u2126", "\u00c5 and \u03a9"},
      {"\u1112\u1161\u11ab", "\ud55c"},
      {"q\u0307\u0323x", "q\u0323\u0307x"},
      {"\u0958", "\u0915\u093c"},
      {"a\u0308\u0301<|endoftext|>\u0301 e\u0301", "\u00e4\u0301<|endoftext|>\u0301 \u00e9"},
      {"\u4e2d\u6587\u304b\u3099e\u0301", "\u4e2d\u6587\u304c\u00e9"}};
  for (auto& [given, form_c] : texts) {
    EXPECT_EQ(composing.encode(given), plain.encode(form_c)) << given;
    EXPECT_EQ(composing.encode(form_c), plain.encode(form_c)) << given;
    EXPECT_NE(plain.encode(given), plain.encode(form_c)) << given;
    for (size_t step = 1; step < given.size(); ++step) {  // as a text that arrives in pieces
      std::string seen;
      std::vector<int32_t> tokens;
      for (size_t at = 0; at < given.size(); at += step) {
        seen += given.substr(at, step);
        seen.erase(
            0, composing.encode({.text = seen, .source = {}, .goes_on = at + step < given.size()},
                                tokens));
      }
      EXPECT_EQ(tokens, plain.encode(form_c)) << given << " in pieces of " << step;
    }
  }
}

// As `tokenizers` and GPT-2's own program do: a merge that is there twice has its last place.
TEST(Bpe, OfEqualMergesTheLastCounts) {
  std::string json = read_bytes(fixture + "/tokenizer.json");
  size_t begin = json.find("\"merges\":[") + 10, end = json.find("],", begin) + 1;
  std::string first = json.substr(begin, end - begin),
              all = json.substr(begin, json.find("]]") + 1 - begin);
  Tokenizer twice = Tokenizer::from_json(replaced(json, all, all + "," + first), "twice"),
            last = Tokenizer::from_json(
                replaced(json, all, all.substr(first.size() + 1) + "," + first), "last");
  bool other = false;
  for (auto& [text, tokens] : encodings()) {
    EXPECT_EQ(twice.encode(text), last.encode(text)) << printable(text);
    other |= twice.encode(text) != tokens;
  }
  EXPECT_TRUE(other);
}

TEST(Bpe, RefusesTokenizersThatEncodeAnotherWay) {
  std::string json = read_bytes(fixture + "/tokenizer.json");
  auto refuses = [&](const std::string& from, const std::string& to, const std::string& part) {
    expect_data_error([&] { Tokenizer::from_json(replaced(json, from, to), "run/t.json"); },
                      {"run/t.json", part});
  };
  refuses("\"type\":\"BPE\"", "\"type\":\"Unigram\"", "a type other than BPE");
  refuses("\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"",
          "is of type Whitespace; expected Split");
  refuses("\"dropout\":null", "\"dropout\":0.1", "has a dropout");
  refuses("\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space");
  refuses("\"add_prefix_space\":false", "\"add_prefix_space\":3", "is not true or false");
  refuses("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}", "a normalizer NFKC");
  refuses("\"lstrip\":false", "\"lstrip\":true", "lstrip");
  refuses("\"byte_fallback\":false", "\"byte_fallback\":true", "expected a Metaspace of");
  refuses("\"id\":446", "\"id\":445", "445 is the number of");
  refuses("\"merges\":[", "\"merges\":[[\"a\"],", "is not a pair");
  refuses("\"merges\":[", "\"merges\":[3,", "merges");
  json = read_bytes(fixture + "/llama3/tokenizer.json");
  refuses("{1,3}", "^", "cuts words in another way: pattern `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^");
  refuses("{1,3}", "^", "lines of Python");
  refuses("\"Isolated\"", "\"Gone\"", "is `Gone`; expected Isolated, Removed, Contiguous");
  refuses("\"type\":\"Split\"", "\"type\":\"Metaspace\"", "is of type Metaspace; expected Split");
  refuses("\"pretokenizers\":[", "\"pretokenizers\":[null,", "has no type");
  refuses("\"pretokenizers\":[",
          "\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},",
          "is Split behind ByteLevel; expected nothing");
  json = read_bytes(fixture + "/pieces/prepend/tokenizer.json");
  refuses("\"prepend\":\"", "\"prepend\":\"_", "is a normalizer Prepend, which");
  refuses("\"content\":\"\u2581\"", "\"content\":\"_\"", "is a normalizer Replace, which");
  refuses("\"type\":\"Prepend\"", "\"type\":\"Strip\"", "is a normalizer Strip, which");
  refuses("\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Metaspace\"}", "byte_fallback");
  refuses("<0x41>\"", "<0x4>\"", "`<0x41>` is missing");
  refuses("\"merges\":[", "\"merges\":[[\"<0x41>\",\"<0x42>\"],", "`<0x41>` is not in the vocab");
  refuses("{\"type\":\"Prepend\"", "{\"type\":\"Prepend\",\"prepend\":\"▁\"},{\"type\":\"Prepend\"",
          "is a normalizer Prepend, which");
  refuses("\"normalized\":false", "\"normalized\":true", "that are normalized");
  json = read_bytes(fixture + "/pieces/first/tokenizer.json");
  refuses("\"replacement\":\"", "\"replacement\":\"_", "a Metaspace of U+2581");
  refuses("\"prepend_scheme\":\"first", "\"prepend_scheme\":\"last", "is `last`; expected");
  json = read_bytes(fixture + "/tokenizer.json");
  refuses("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}", "lines of Python");
  refuses("\"dropout\":null", "\"dropout\":0.1", "export --tokenizer DIR");
  for (auto [from, to] :
       {std::pair("\"dropout\":null", "\"dropout\":0.0"),
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]}"},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
         "\"trim_offsets\":true,\"use_regex\":true}",
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
         "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
         "\"use_regex\":true}]}"}})
    EXPECT_EQ(Tokenizer::from_json(replaced(json, from, to), "harmless").hash(),
              from_file().hash());
  // Older files write a merge as one text.
  auto old = Tokenizer::from_json(replaced(json, "[\"i\",\"n\"]", "\"i n\""), "old");
  EXPECT_EQ(old.hash(), from_file().hash());
}

}  // namespace triax::text::bpe_test
