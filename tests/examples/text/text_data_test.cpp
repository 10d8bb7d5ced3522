#include "examples/text/text_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/io/files.h"

namespace triax::text::text_data_test {

using namespace test;
using Ids = std::vector<int32_t>;

// Letter i of this text is token i.
const std::string letters = "abcdefghijklmnopqrst";

TextData cut(int64_t context, double val_fraction, const std::string& text = letters) {
  Split split{.context = context, .val_fraction = val_fraction, .name = "some.txt"};
  return TextData(text, Tokenizer::from_text(text), split);
}

nn::Batch batch(const Windows& windows, const std::vector<int64_t>& indices) {
  return windows.batch(indices);
}

TEST(TextData, HoldsOutTheEnd) {
  auto data = cut(4, 0.35);
  EXPECT_EQ(data.tokens(), 20);
  EXPECT_EQ(data.train_tokens(), 13);
  EXPECT_EQ(data.train_samples()->count(), 9);
  EXPECT_EQ(data.val_tokens(), 6);
  EXPECT_EQ(data.val_samples()->count(), 2);
}

TEST(TextData, BeginsAWindowAtEveryPosition) {
  auto windows = cut(4, 0.35).train_samples();
  nn::Batch b = batch(*windows, {8, 0});
  EXPECT_EQ(b.input.shape(), Shape({2, 4}));
  EXPECT_EQ(b.input.to_host<int32_t>(), (Ids{8, 9, 10, 11, 0, 1, 2, 3}));
  // The last target is the last token to train on.
  EXPECT_EQ(b.target.to_host<int32_t>(), (Ids{9, 10, 11, 12, 1, 2, 3, 4}));
  for (int64_t i : {0, 8}) EXPECT_EQ(windows->weight(i), 4);
  for (int64_t outside : {int64_t{-2}, windows->count()})
    expect_error([&] { batch(*windows, {outside}); }, {"data: sample", "expected"});
}

TEST(TextData, ValidatesOnEveryHeldOutTokenOnce) {
  auto windows = cut(4, 0.35).val_samples();  // held out: 13..19
  nn::Batch b = batch(*windows, {0, 1, -1});  // and a blank
  EXPECT_EQ(b.input.to_host<int32_t>(), (Ids{13, 14, 15, 16, 17, 18, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(b.target.to_host<int32_t>(), (Ids{14, 15, 16, 17, 18, 19, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(batch(*windows, {1}).target.to_host<int32_t>(), (Ids{18, 19, -1, -1}));
  EXPECT_EQ(windows->weight(0), 4);
  EXPECT_EQ(windows->weight(1), 2);
  EXPECT_EQ(cut(3, 0.35).val_samples()->count(), 2);  // six targets, no ragged window
}

TEST(TextData, LabelsAreSmoothedInTrainingAlone) {
  auto tokenizer = Tokenizer::from_text("abcdefgh", "text");
  TextData data("abcdefgh", tokenizer, {.context = 2, .val_fraction = 0.4});
  Text text{tokenizer, data, "text"};
  text.label_smoothing = 0.25;
  auto task = text.task();
  const int64_t first[] = {0};
  EXPECT_EQ(task.samples->augmented(first, 0).loss.smoothing, 0.25);
  EXPECT_EQ(task.samples->batch(first).loss.smoothing, 0);
  EXPECT_EQ(task.held_out->augmented(first, 0).loss.smoothing, 0);
  EXPECT_EQ(task.samples->identity(), data.train_samples()->identity());
}

TEST(TextData, MayHoldOutNothing) {
  auto data = cut(19, 0);
  EXPECT_EQ(data.train_samples()->count(), 1);
  EXPECT_EQ(data.val_tokens(), 0);
  EXPECT_EQ(data.val_samples(), nullptr);
}

TEST(TextData, SaysHowMuchTextIsMissing) {
  EXPECT_EQ(error_of([] { cut(20, 0); }, Exit::data),
            "data: some.txt: 20 of its 20 tokens are to train on, too few for a window; context 20 "
            "needs 21\n  Take more data, or a smaller --context.");
  EXPECT_EQ(
      error_of([] { cut(2, 0.05); }, Exit::data),
      "data: some.txt: 1 of its 20 tokens are held out, too few to validate on; expected 2 or "
      "more, or --val-fraction 0");
}

TEST(TextData, MeasuresTheEntropyOfTheWholeText) {
  EXPECT_NEAR(cut(2, 0.5, "aaaaaabb").unigram_entropy(),
              -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)), 1e-12);
  EXPECT_EQ(cut(2, 0, "aaaa").unigram_entropy(), 0);
}

// A resumed run must be told that its data is another.
TEST(TextData, KnowsItselfFromOtherData) {
  std::string mine = cut(4, 0.35).train_samples()->identity(), other = letters;
  EXPECT_EQ(cut(4, 0.35).train_samples()->identity(), mine);
  std::swap(other[2], other[3]);
  std::string upper;  // of which all tokens are the same
  for (char c : letters) upper += char(c - 'a' + 'A');
  for (auto& changed : {cut(5, 0.35), cut(4, 0.3), cut(4, 0.35, other), cut(4, 0.35, upper)})
    EXPECT_NE(changed.train_samples()->identity(), mine);
  EXPECT_NE(cut(4, 0.35).val_samples()->identity(), mine);
}

TEST(TextData, RefusesFilesThatAreNoText) {
  TemporaryDirectory dir;
  disk().write(dir / "empty", "");
  disk().write(dir / "text", "a text");
  EXPECT_EQ(read({.data = dir / "text", .val_fraction = 0}, 1).data.tokens(), 6);
  struct Case {
    std::string path;
    Exit code;
  };
  for (const Case& c : {Case{dir / "absent", Exit::not_found}, Case{dir.path(), Exit::data},
                        Case{dir / "empty", Exit::data}}) {
    expect_error([&] { read({.data = c.path}, 1); }, {c.path}, c.code);
  }
  auto t = Tokenizer::from_text("ab");
  expect_data_error([&] { TextData("ab\xFF", t, {}); }, {"byte 2"});
}

TEST(TextData, OfMoreThan2GiBAreTokenizedFirst) {
  TemporaryDirectory dir;
  disk().write(dir / "large.txt", "a");
  std::filesystem::resize_file(dir / "large.txt", 3'000'000'000);
  EXPECT_EQ(error_of([&] { read({.data = dir / "large.txt"}, 1); }, Exit::data),
            "data: " + (dir / "large.txt") +
                " has 3000000000 bytes; expected a text of at most 2147483648\n"
                "  Tokenize it first: `minigpt data " +
                (dir / "large.txt") + " --tokenizer bpe:N --out DIR`, then --data DIR.");
}

TEST(TextData, SaysThatJsonLinesAreTrainedOnAsTheyAre) {
  TemporaryDirectory dir;
  auto said = [&](const std::string& text) {
    write_bytes(dir / "f", text);
    return read({.data = dir / "f", .val_fraction = 0}, 4).task().description;
  };
  const std::string notice = ": JSON Lines, taken as they are, with keys and braces";
  EXPECT_TRUE(says(said("{\"text\": \"one\"}\n{\"text\": \"two\"}\n"), notice));
  EXPECT_TRUE(says(said("{\"text\": \"one\"}"), notice));
  for (const char* text :
       {"{\n  \"a\": 1\n}\n", "{a b}\nc d\n", "some text", "{\"a\": 1} and more\n"})
    EXPECT_FALSE(says(said(text), "JSON")) << text;
}

TEST(Mixture, HasOfEachSourceItsShare) {
  auto source = [](int64_t size, int32_t token) {
    auto tokens = std::make_shared<TokensInMemory>(Ids(size_t(size), token));
    return std::make_shared<Windows>(tokens, "v", Windows::Range{0, size, 4});
  };
  auto large = source(1004, 1), small = source(54, 2);  // 1,000 and 50 samples
  Mixture mixed({{large, 0.6}, {small, 1.4}});
  std::map<int32_t, int> samples;
  for (int64_t i = 0; i < mixed.count(); ++i)
    ++samples[mixed.batch({&i, 1}).input.to_host<int32_t>()[0]];
  EXPECT_EQ(samples, (std::map<int32_t, int>{{1, 1000}, {2, 2333}}));  // 0.3 and 0.7
  auto joined = Mixture::joined({large, small});
  EXPECT_EQ(joined->count(), 1050);
  std::vector<int64_t> both = {999, 1000, -1};
  EXPECT_EQ(joined->batch(both).input.to_host<int32_t>(),
            (Ids{1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0}));
}

TEST(TextData, RefusesSharesThatAreNone) {
  auto sources = data_sources("a:0.7,b:0.3");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[1].path, "b");
  EXPECT_EQ(sources[1].share, 0.3);
  EXPECT_EQ(data_sources("C:/a,b").at(0).path, "C:/a,b");
  auto refuses = [](const std::string& data, const std::string& part) {
    expect_config_error([&] { data_sources(data); }, {part});
  };
  refuses("a:0.7,b", "`b` of `a:0.7,b` has no share");
  refuses("a:x,b:1", "`a:x`");
  refuses("a:1,", "`` of `a:1,`");
  refuses("a:0,b:1", "the share of a is 0");
  refuses("a:1e999,b:1", "the share of a is 1e999");
  refuses("a:1e-300,b:1", "the share of a is 1e-300, that of b 1");
}

TEST(TextData, RefusesSourcesWithoutShares) {
  TemporaryDirectory dir;
  for (auto name : {"a.txt", "b.txt", "c.txt"}) disk().write(dir / name, "some text");
  std::string a = dir / "a.txt", b = dir / "b.txt", c = dir / "c.txt", none = dir / "d.txt";
  EXPECT_EQ(error_of([&] { data_sources(a + "," + b); }, Exit::config),
            "data: `" + a + "," + b + "` are 2 sources without shares\n  Give each its share: " +
                a + ":0.5," + b + ":0.5");
  expect_config_error([&] { data_sources(a + ", " + b + ", " + c); },
                      {"3 sources", a + ":0.333," + b + ":0.333," + c + ":0.333"});
  expect_config_error([&] { data_sources(a + "," + none); }, {"2 sources", "no file " + none});
  disk().write(dir / "x,y", "a file with a comma");
  EXPECT_EQ(data_sources(dir / "x,y").size(), 1u);
  EXPECT_EQ(data_sources(none + "," + none).size(), 1u) << "a path that is not there";
}

TEST(TextData, AllowsMoreRowsThanTokens) {
  auto t = Tokenizer::from_text("abc");
  EXPECT_EQ(vocabulary(0, t), 3);
  EXPECT_EQ(vocabulary(3, t), 3);
  EXPECT_EQ(vocabulary(8, t), 8);
  expect_config_error([&] { vocabulary(2, t); }, {"vocab=2 is less than the 3 characters"});
}

/// Windows of `context` letters; every '.' ends a document.
std::shared_ptr<const Windows> documents(const std::string& text, int64_t context,
                                         double val_fraction = 0) {
  auto tokenizer = Tokenizer::from_text(text);
  Split split{.context = context, .val_fraction = val_fraction, .name = "some.txt"};
  split.document_end = document_end(".", tokenizer);
  TextData data(text, tokenizer, split);
  return val_fraction > 0 ? data.val_samples() : data.train_samples();
}

/// Input and targets of every window, as `abc>bcd`.
std::vector<std::string> texts(const Windows& windows, const std::string& text) {
  auto tokenizer = Tokenizer::from_text(text);
  std::vector<std::string> all;
  for (int64_t i = 0; i < windows.count(); ++i) {
    nn::Batch b = batch(windows, {i});
    auto count = size_t(windows.weight(i));
    Ids input = b.input.to_host<int32_t>(), target = b.target.to_host<int32_t>();
    EXPECT_EQ(std::count(target.begin(), target.end(), -1), std::ssize(target) - ptrdiff_t(count));
    input.resize(count), target.resize(count);
    all.push_back(tokenizer.decode(input) + ">" + tokenizer.decode(target));
  }
  return all;
}

TEST(TextData, KeepsDocumentsApart) {
  std::string text = "abc.defghij..kl";  // the empty one has no target
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(*documents(text, 4), text), (Texts{"abc>bc.", "defg>efgh", "hij>ij.", "k>l"}));
  EXPECT_EQ(texts(*documents(text, 8), text), (Texts{"abc>bc.", "defghij>efghij.", "k>l"}));
  // A split in the middle of a document: what is held out of it is one of its own.
  EXPECT_EQ(texts(*documents(text, 4, 0.6), text), (Texts{"fghi>ghij", "j>.", "k>l"}));
  EXPECT_NE(documents(text, 4)->identity(), documents("abc.defghij.kl.", 4)->identity());
}

TEST(TextData, RefusesWhatEndsNoDocument) {
  auto tokenizer = Tokenizer::from_text(letters);
  EXPECT_EQ(document_end("19", tokenizer), 19);
  EXPECT_EQ(document_end("c", tokenizer), 2);
  EXPECT_EQ(document_end("", tokenizer), std::nullopt);
  expect_config_error([&] { document_end("abc", tokenizer); },
                      {"document-end=`abc` is no token", "a number below 20"});
  for (auto other : {"20", "é"})
    expect_config_error([&] { document_end(other, tokenizer); }, {"is no token"});
  EXPECT_EQ(texts(*documents("ab.cdefghi", 4, 0.3), "ab.cdefghi"),
            std::vector<std::string>{"gh>hi"});  // no document ends in what is held out
  expect_data_error([&] { documents("....", 2); },
                    {"every document in these 4 tokens has fewer than 2"});
  Split split{.context = 4, .name = "some.txt", .document_end = 5};
  expect_data_error(
      [&] { TextData("abcde", Tokenizer::from_text("abcdef"), split).train_samples(); },
      {"none of the 5 tokens to train on is 5"});
}

TEST(ReadText, APlanNeedsNoDataBesideTheVocabulary) {
  TextOptions plan{.data = "/nowhere", .shapes_only = true};
  constexpr int64_t context = 1 << 20, vocab = 50257;
  Text text = read(plan, context, vocab);
  EXPECT_EQ(text.tokenizer.size(), vocab);
  auto task = text.task();
  EXPECT_EQ(task.samples->batch(std::vector<int64_t>{0}).target.shape(), (Shape{1, context}));
  EXPECT_EQ(task.held_out, nullptr);
  EXPECT_TRUE(task.description.starts_with("/nowhere is not here")) << task.description;
  expect_error([&] { read(plan, context); }, {"open /nowhere"}, Exit::not_found);
  TemporaryDirectory dir;
  disk().write(dir / "text", "a text");
  plan.data = dir / "text", plan.val_fraction = 0;
  EXPECT_EQ(read(plan, 1, vocab).tokenizer.size(), 5) << "data that are there are read";
  plan.data.clear();
  EXPECT_TRUE(read(plan, 1, vocab).task().description.starts_with("no data read"));
}

}  // namespace triax::text::text_data_test
