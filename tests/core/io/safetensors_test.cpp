#include "triax/core/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/support/expect_error.h"
#include "triax/core/check.h"

namespace triax::nn {
namespace {

struct Refused {
  std::string json;
  uint64_t data_bytes;
  std::string why;
};

// One entry `x`, from the text of its fields.
std::string entry(const std::string& fields) { return "{\"x\":{" + fields + "}}"; }

TEST(Safetensors, NamesWhatIsWrong) {
  const std::string u8 = R"("dtype":"U8",)", good = R"("shape":[2],"data_offsets":[0,2])";
  const std::vector<Refused> cases = {
      {"", 0, "does not start with an open brace"},
      {"[]", 0, "does not start with an open brace"},
      {"\xef\xbb\xbf{}", 0, "does not start with an open brace"},
      {std::string("{}\0", 3), 0, "zero byte"},
      {"{}x", 0, "not JSON at byte"},
      {"{\"x\":", 0, "not JSON at byte"},
      {"{\"x\":1,}", 0, "not JSON at byte 8, line 1: a comma before }"},
      {"{\"x\":[1,\n ]}", 0, "not JSON at byte 11, line 2: a comma before ]"},
      {"{\"\xff\":1}", 0, "not JSON at byte"},
      {R"({"x":[]})", 0, "x of the file is not an object"},
      {R"({"x":"y"})", 0, "x of the file is not an object"},
      {R"({"x":null})", 0, "x of the file is not an object"},
      {R"({"x":true})", 0, "x of the file is not an object"},
      {R"({"x":{}})", 0, "x of the file has no dtype"},
      {R"({"__metadata__":{"a":1}})", 0, "a of __metadata__ of the file is not a text"},
      {R"({"__metadata__":{"a":"b","a":"b"}})", 0, "a is given twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ is given twice"},
      {"{\"x\":{" + u8 + good + "},\"x\":{" + u8 + good + "}}", 4, "x is given twice"},
      {entry(u8 + u8 + good), 2, "dtype is given twice"},
      {entry(u8 + good + R"(,"more":1)"), 2, "x of the file has an unknown field more"},
      {entry(R"("dtype":"F8_E4M3",)" + good), 2, "x of the file has unknown dtype F8_E4M3"},
      {entry(R"("dtype":7,)" + good), 2, "dtype of x of the file is not a text"},
      {entry(u8 + R"("shape":[-2],"data_offsets":[0,2])"), 2,
       "element 0 of shape of x of the file is not a number"},
      {entry(u8 + R"("shape":[2.0],"data_offsets":[0,2])"), 2,
       "element 0 of shape of x of the file is not a number"},
      {entry(u8 + R"("shape":[1e999],"data_offsets":[0,2])"), 2, "a number is out of range"},
      {entry(u8 + R"("shape":[[2]],"data_offsets":[0,2])"), 2, "nested deeper than 3"},
      {entry(u8 + R"("shape":[9223372036854775808],"data_offsets":[0,2])"), 2,
       "is not a number from 0 to 9223372036854775807"},
      {entry(u8 + R"("shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1,
       "shape of x of the file is not an array of at most 8"},
      {entry(u8 + R"("shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0, "overflows"},
      {entry(u8 + R"("shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), 0, "overflows"},
      {entry(u8 + R"("shape":[2],"data_offsets":[0])"), 2,
       "has data_offsets that are not two numbers"},
      {entry(u8 + R"("shape":[2],"data_offsets":[0,1,2])"), 2,
       "data_offsets of x of the file is not an array of at most 2"},
      {entry(u8 + R"("shape":[2],"data_offsets":[0,3])"), 3, "expected 2 bytes"},
      {entry(u8 + R"("shape":[2],"data_offsets":[2,0])"), 2, "expected 2 bytes"},
      {entry(u8 + R"("shape":[2],"data_offsets":[1,3])"), 3, "begins at byte 1; expected 0"},
      {entry(u8 + good), 3, "3 bytes of data; the header describes 2"},
      {entry(u8 + good), 1, "1 bytes of data; the header describes 2"},
      {"{\"x\":{" + u8 + good + "},\"y\":{" + u8 + good + "}}", 2,
       "tensor y: its data begins at byte 0; expected 2"},
      {std::string(1'000'000, '[').insert(0, "{\"x\":"), 0, "nested deeper than 3"},
  };
  for (const Refused& c : cases)
    test::expect_data_error([&] { parse_header(c.json, c.data_bytes, "f"); }, {c.why});
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  auto mask = parse_header(R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2, "x");
  EXPECT_EQ(mask.entries[0].dtype, u8);
  TensorHeader h = parse_header(R"({ "b" : {"data_offsets":[3,3],"shape":[0],"dtype":"F64"},
      "a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"":{"dtype":"U8","shape":[],
      "data_offsets":[3,4]}}   )",
                                4, "f");
  ASSERT_EQ(h.entries.size(), 3u);
  EXPECT_EQ(h.entries[0].name, "a");
  EXPECT_EQ(h.entries[1].name, "b");
  EXPECT_EQ(h.entries[2].bytes(), 1u);
}

TEST(Safetensors, ControlCharactersDoNotReachTheTerminal) {
  test::expect_data_error([] { parse_header("{\"\\u001b[31mred\":null}", 0, "f"); },
                          {"?[31mred of the file is not an object"});
}

// Random damage, mostly of the kind that keeps JSON alive. TRIAX_FUZZ sets the count.
TEST(Safetensors, RandomHeadersAreReadOrRefused) {
  TensorHeader h{.entries = {{"blocks.0.w", f32, {2, 3}, 0, 24},
                             {"e", i64, {0}, 24, 24},
                             {"s", bf16, {}, 24, 26}},
                 .metadata = {{"k", "v\n"}}};
  const std::string good = format_header(h);
  const std::vector<std::string> words = {
      "{", "}", "[",     "]",    ",",  ":",   "\"",   "0",    "9",   "-",
      "e", ".", "\\u00", "null", "[[", "F32", "BF16", "true", "\\d", "99999999999999999999"};
  const char* wish = std::getenv("TRIAX_FUZZ");
  const int64_t count = wish ? std::atoll(wish) : 200'000;
  std::mt19937_64 random(7);
  auto below = [&](size_t n) { return size_t(random() % n); };
  int64_t accepted = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::string text = good;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      size_t at = below(text.size() + 1), bytes = below(8);
      switch (below(5)) {
        case 0:
          if (at < text.size()) text[at] = char(random());
          break;
        case 1:
          text.erase(at, bytes);
          break;
        case 2:
          text.insert(at, words[below(words.size())]);
          break;
        case 3:
          text.insert(at, text.substr(below(text.size() + 1), 8 * bytes));
          break;
        default:
          if (at < text.size() && text[at] >= '0' && text[at] <= '9')
            text[at] = char('0' + below(10));
      }
    }
    try {
      TensorHeader read = parse_header(text, 26, "f");
      uint64_t bytes = 0;
      for (const TensorEntry& e : read.entries) {
        EXPECT_EQ(e.bytes(), uint64_t(e.shape.numel()) * size_of(e.dtype));
        bytes += e.bytes();
      }
      EXPECT_EQ(bytes, 26u);
      ++accepted;
    } catch (const Error& e) {
      ASSERT_EQ(int(e.code()), int(Exit::data)) << e.what();
    }
  }
  EXPECT_GT(accepted, count / 100);  // renamed tensors, spaces, another key
  EXPECT_LT(accepted, count / 2);
}

}  // namespace
}  // namespace triax::nn
