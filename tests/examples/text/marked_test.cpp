// Conversations and questions: which tokens are targets, in which form, and what is refused.
#include "examples/text/marked.h"

#include <gtest/gtest.h>

#include "examples/text/tokenizer/bpe.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/io/files.h"

namespace triax::text::marked_test {

using namespace test;

/// Byte-level BPE without merges but for these whole tokens.
Tokenizer tokenizer_with(const std::vector<std::string>& added, bool composes = false) {
  BpeParts parts{.composes = composes};
  for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, char(byte));
  for (auto& content : added) {
    parts.added.push_back({int32_t(parts.tokens.size()), content});
    parts.tokens.push_back(content);
  }
  return Tokenizer(std::make_shared<Bpe>(parts));
}

/// Returns the text of a sequence, with the targets in brackets.
std::string shown(const MarkedTokens& s, const Tokenizer& tokenizer) {
  std::string text;
  bool inside = false;
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    if (s.counts[i] != inside) text += inside ? "]" : "[";
    inside = s.counts[i];
    text += tokenizer.decode(std::span(&s.tokens[i], 1));
  }
  return text + (inside ? "]" : "");
}

class MarkedText : public testing::Test {
 protected:
  std::string file(const std::string& text) {
    disk().replace(folder_ / "lines", text);
    return folder_ / "lines";
  }
  std::vector<std::string> read(const std::string& lines, const Tokenizer& t, Chat form,
                                int64_t context = 200) {
    std::vector<std::string> all;
    for (auto& one : read_conversations(file(lines), t, form, context, said_))
      all.push_back(shown(one, t));
    return all;
  }
  TemporaryDirectory folder_;
  std::string said_;
};

constexpr const char* talk =
    R"({"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": " Hi é "},)"
    R"( {"role": "assistant", "content": "Yes\n"}, {"role": "user", "content": "?"},)"
    R"( {"role": "assistant", "content": "No"}]})";

TEST_F(MarkedText, ConversationsAreWrittenInTheirForm) {
  auto chatml = tokenizer_with({"<|im_start|>", "<|im_end|>"});
  EXPECT_EQ(
      read(talk, chatml, Chat::chatml),
      std::vector<std::string>{"<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n Hi "
                               "é <|im_end|>\n<|im_start|>assistant\n[Yes\n<|im_end|>]\n"
                               "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
                               "[No<|im_end|>]\n"});
  auto llama3 = tokenizer_with(
      {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  EXPECT_EQ(read(R"({"prompt": " Hi ", "completion": "Yes"})", llama3, Chat::llama3),
            std::vector<std::string>{
                "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n[Yes<|eot_id|>]"});
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0},)"
                 R"( {"role": "assistant", "content": "b", "weight": 1}]})",
                 chatml, Chat::chatml),
            std::vector<std::string>{"<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\n"
                                     "[b<|im_end|>]\n"});
  expect_data_error(
      [&] {
        read(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]})",
             chatml, Chat::chatml);
      },
      {"line 1", "has tool_calls"});
  for (auto [kind, text] :
       {std::pair("first", " the</s>[ rank s</s>]"), {"prepend", " the</s>[  rank s</s>]"}})
    EXPECT_EQ(
        read(R"({"prompt": "the</s>", "completion": " rank▁s"})",
             read_tokenizer(TRIAX_SOURCE_DIR "/tests/fixtures/bpe/pieces/" + std::string(kind)),
             Chat::plain),
        std::vector<std::string>{text})
        << kind;
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": null}]})",
                 chatml, Chat::chatml),
            std::vector<std::string>{"<|im_start|>assistant\n[a<|im_end|>]\n"});
  auto plain = tokenizer_with({"<|endoftext|>"});
  EXPECT_EQ(read("{\"prompt\": \"a\", \"completion\": \" b\"}\n\n"
                 "{\"prompt\": \"c\", \"completion\": \"\"}\n",
                 plain, Chat::plain),
            (std::vector<std::string>{"a[ b<|endoftext|>]", "c[<|endoftext|>]"}));
  EXPECT_EQ(read(R"({"prompt": "a", "completion": "b"})", tokenizer_with({}), Chat::plain),
            std::vector<std::string>{"a[b]"});
  auto nfc = tokenizer_with({"<|endoftext|>"}, true);  // Qwen's: bytes of the tokens are fewer
  EXPECT_EQ(
      read("{\"prompt\": \"cafe\u0301 \u212b\", \"completion\": \" e\u0301e\"}", nfc, Chat::plain),
      std::vector<std::string>{"caf\u00e9 \u00c5[ \u00e9e<|endoftext|>]"});
}

TEST_F(MarkedText, SamplesAreCutAndPadded) {
  auto plain = tokenizer_with({});
  std::string lines =
      "{\"prompt\": \"ab\", \"completion\": \"cdefg\"}\n"
      "{\"prompt\": \"abcdefgh\", \"completion\": \"i\"}\n"
      "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  auto all = read_conversations(file(lines), plain, Chat::plain, 4, said_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(said_.find("1 of 3 conversations have no answer within 4 tokens"), said_.npos) << said_;
  Marked samples(all, 4);
  EXPECT_EQ(samples.weight(0), 3);
  EXPECT_EQ(samples.weight(1), 1);
  auto batch = samples.batch(std::vector<int64_t>{0, -1, 1});
  EXPECT_EQ(batch.input.to_host<int32_t>(),
            (std::vector<int32_t>{'a', 'b', 'c', 'd', 0, 0, 0, 0, 'a', 0, 0, 0}));
  EXPECT_EQ(batch.target.to_host<int32_t>(),
            (std::vector<int32_t>{-1, 'c', 'd', 'e', -1, -1, -1, -1, 'b', -1, -1, -1}));
  auto other = all;
  other[0].counts[2] = false;
  EXPECT_NE(Marked(other, 4).identity(), samples.identity());
}

// An added token that begins with U+2581, behind a space that the tokenizer may have put.
TEST_F(MarkedText, ATextThatItsTokensDoNotSpellIsRefused) {
  std::string json =
      read_bytes(TRIAX_SOURCE_DIR "/tests/fixtures/bpe/pieces/prepend/tokenizer.json");
  int64_t next = Tokenizer::from_json(json, "pieces").size();
  json.insert(json.find("],\"normalizer\""),
              ",{\"id\":" + std::to_string(next) +
                  R"(,"content":"▁<PRE>","lstrip":false,"rstrip":false,"normalized":false})");
  auto t = Tokenizer::from_json(json, "pieces");
  expect_data_error(
      [&] { read(R"({"prompt": "the</s> ▁<PRE>", "completion": "a"})", t, Chat::plain); },
      {"line 1", "expected a tokenizer whose tokens spell the text"});
}

TEST_F(MarkedText, AnEndingFollowsItsQuestionWithOneSpace) {
  auto t = read_tokenizer(TRIAX_SOURCE_DIR "/tests/fixtures/bpe/pieces/prepend");
  std::string line = R"({"ctx": "the", "endings": ["rank", "a"], "label": 0})";
  auto batch = read_choices(file(line), t, 20).samples->batch(std::vector<int64_t>{0});
  auto all = t.encode("the rank"), input = batch.input.to_host<int32_t>();
  EXPECT_TRUE(std::equal(all.begin(), all.end() - 1, input.begin()));
}

TEST_F(MarkedText, ChoicesHaveTheRightOneFirst) {
  auto t = tokenizer_with({});
  auto choices =
      read_choices(file("{\"ctx\": \"abc\", \"endings\": [\"d\", \"e\"], \"label\": \"1\"}\n"
                        "{\"ctx\": \"f\", \"endings\": [\"g\", \"hi\"], \"label\": 0}\n"),
                   t, 3);
  EXPECT_EQ(choices.endings, 2);
  auto batch = choices.samples->batch(std::vector<int64_t>{0, 1, 2, 3});
  EXPECT_EQ(batch.input.to_host<int32_t>(),  // of the first question the beginning is lost
            (std::vector<int32_t>{'b', 'c', ' ', 'b', 'c', ' ', 'f', ' ', 0, 'f', ' ', 'h'}));
  EXPECT_EQ(batch.target.to_host<int32_t>(),
            (std::vector<int32_t>{-1, ' ', 'e', -1, ' ', 'd', ' ', 'g', -1, ' ', 'h', 'i'}));
  // Targets are all sure but for the third ending, which is likelier by its mean alone.
  std::vector<float> logits(12 * 256, 0);
  auto targets = batch.target.to_host<int32_t>();
  for (size_t r = 0; r < 12; ++r)
    if (targets[r] >= 0)
      logits[r * 256 + size_t(targets[r])] = r < 3 ? 9 : r < 6 ? 8 : r < 9 ? 1 : 2;
  Tensor prediction = from_host(logits, {12, 256}, cpu);
  double unit = 9.0 / 2;  // targets of a question: scores are means over targets
  EXPECT_EQ(choices.scores.at("acc")(prediction, batch.target), 2 * unit);
  EXPECT_EQ(choices.scores.at("acc_norm")(prediction, batch.target), unit);
  auto blank = choices.samples->batch(std::vector<int64_t>{-1, -1});
  EXPECT_EQ(choices.scores.at("acc")(prediction.narrow(0, 0, 6), blank.target), 0);
  expect_config_error([&] { choices.scores.at("acc")(prediction, batch.target.narrow(0, 0, 3)); },
                      {"whole questions of 2 endings"});
}

TEST_F(MarkedText, OtherLinesAreRefused) {
  auto t = tokenizer_with({});
  expect_config_error([&] { read(talk, t, Chat::chatml); }, {"has no token <|im_start|>", "plain"});
  for (auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"{\"prompt\": \"a\"}", "line 1, the line has no completion"},
           {"\n{\"prompt\": 1, \"completion\": \"b\"}", "line 2"},
           {"[1]", "line 1"},
           {"{\"prompt\": \"a\", \"completion\": \"\"}", "none of the 1 conversations"}})
    expect_data_error([&] { read(line, t, Chat::plain); }, {part});
  for (auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0}",
            "has 1 endings; expected 2 or more"},
           {"{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 2}",
            "is 2; expected an ending"},
           {"{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"x\"}", "is no number"},
           {"{\"ctx\": \"\", \"endings\": [\"b\", \"c\"], \"label\": 0}", "a question of 0"},
           {"{\"ctx\": \"a\", \"endings\": [\"bcdef\", \"c\"], \"label\": 0}",
            "an ending of 6 tokens"},
           {"", "no lines"}})
    expect_data_error([&] { read_choices(file(line), t, 4); }, {part});
}

}  // namespace triax::text::marked_test
