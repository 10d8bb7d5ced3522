#include "examples/text/make_shards.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "examples/text/tokenizer/bpe.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace triax::text::make_shards_test {

using namespace test;

std::string some_words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += std::string(i % 11 == 0 ? "\n" : " ") +
            "wörter"[i % 5 == 1   ? 0
                     : i % 6 == 2 ? 3
                                  : 4] +
            std::to_string(i * i % 97) + (i % 3 == 0 ? " 数据" : "");
  return text;
}

class MakeShards : public testing::Test {
 protected:
  MakeShards() {
    disk().write(dir_ / "a", some_words(2000));
    disk().write(dir_ / "b", "The end.\n" + some_words(500));
  }
  ShardJob job(const std::string& out, const std::string& tokenizer = "bpe:300") const {
    return {.inputs = {dir_ / "a", dir_ / "b"},
            .tokenizer = tokenizer,
            .out = dir_ / out,
            .shard_size = 1500};
  }
  ShardManifest make(const ShardJob& job, const Files& files = disk()) {
    return make_shards(
        job, [this](const ShardProgress& p) { last_ = p; }, files);
  }
  /// Names and bytes of all that is in a directory but the lock.
  std::map<std::string, std::string> content(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (auto& name : disk().list(dir_ / out))
      if (name != "lock") all[name] = read_bytes((dir_ / out) + "/" + name);
    return all;
  }
  std::vector<int32_t> tokens_in(const std::string& out) const {
    int64_t largest = 0;
    auto tokens = map_tokens(find_tokens(dir_ / out).training, 0, largest);
    std::vector<int32_t> all(size_t(tokens->size()));
    tokens->read(0, all);
    return all;
  }

  TemporaryDirectory dir_;
  ShardProgress last_{""};
};

TEST_F(MakeShards, HoldTheTokensOfTheTexts) {
  for (const char* kind : {"char", "bpe:300"}) {
    std::string out = std::string("out ") + kind;
    ShardManifest m = make(job(out, kind));
    auto tokenizer = *find_tokens(dir_ / out).tokenizer;
    auto expected = tokenizer.encode(read_bytes(dir_ / "a"));
    auto more = tokenizer.encode(read_bytes(dir_ / "b"));
    expected.insert(expected.end(), more.begin(), more.end());
    EXPECT_EQ(tokens_in(out), expected) << kind;
    EXPECT_EQ(m.tokens(), std::ssize(expected));
    ASSERT_GT(m.shards.size(), 2u);
    for (size_t i = 0; i + 1 < m.shards.size(); ++i) EXPECT_EQ(m.shards[i].tokens, 1500);
    EXPECT_EQ(last_.done, last_.all);
    EXPECT_EQ(last_.tokens, m.tokens());
  }
}

// A tokenizer puts a space before a text and behind added tokens, not where a piece begins.
TEST_F(MakeShards, HoldTheTokensOfATextInPieces) {
  std::string text;
  while (text.size() < size_t{5} << 20) text += some_words(20000) + "</s>";
  disk().replace(dir_ / "a", text);
  std::string kind = TRIAX_SOURCE_DIR "/tests/fixtures/bpe/pieces/prepend";
  make({{dir_ / "a"}, "gpt2:" + kind, dir_ / "out", 1 << 20});
  EXPECT_EQ(tokens_in("out"), read_tokenizer(kind).encode(text));
}

TEST_F(MakeShards, HaveFourBytesATokenWhereTwoAreTooFew) {
  std::string json = learn_bpe("a", 257).json(), added;
  for (int i = 257; i <= 1 << 16; ++i)
    added += fmt::format(R"({{"id":{},"content":"<{}>"}},)", i, i);
  json.insert(json.find("\"added_tokens\":[") + 16, added);
  disk().make_directory(dir_ / "large");
  disk().write(dir_ / "large/tokenizer.json", json);
  disk().write(dir_ / "c", "a<65536>b");
  ShardJob j{.inputs = {dir_ / "c"}, .tokenizer = "gpt2:" + (dir_ / "large"), .out = dir_ / "wide"};
  EXPECT_EQ(make(j).width, 4);
  EXPECT_EQ(tokens_in("wide"), (std::vector<int32_t>{64, 65536, 65}));
}

// Whatever fails on the way, and however far it came: what is called again makes the same files.
TEST_F(MakeShards, GoOnAfterAnyFailure) {
  make(job("whole"));
  auto expected = content("whole");
  int failed = 0;
  for (int at = 0;; ++at) {
    FaultyFiles faulty(at, ENOSPC);
    std::string out = "out" + std::to_string(at);
    try {
      make(job(out), faulty);
      EXPECT_EQ(faulty.failed(), "");
    } catch (const Error& e) {
      EXPECT_NE(faulty.failed(), "") << e.what();
      bool reading = (faulty.failed() == "open" && faulty.failed_path() != dir_ / out) ||
                     faulty.failed() == "read" || faulty.failed() == "size of" ||
                     faulty.failed() == "list";
      EXPECT_EQ(e.code() == Exit::cannot_write, !reading) << e.what();
      EXPECT_TRUE(says(std::string(e.what()), "No space left")) << e.what();
      ++failed;
      for (auto& [name, bytes] : content(out))
        EXPECT_TRUE(!name.ends_with(".bin") || bytes == expected.at(name)) << name;
    }
    bool done = faulty.failed().empty();
    make(job(out));
    EXPECT_EQ(content(out), expected) << "after failure " << at << " of " << faulty.failed();
    if (done) break;
  }
  EXPECT_GT(failed, 30);
}

TEST_F(MakeShards, AreNotMadeTwice) {
  make(job("out"));
  auto before = std::filesystem::last_write_time(dir_ / "out/tokens-00000.bin");
  last_ = {""};
  EXPECT_TRUE(make(job("out")).complete);
  EXPECT_EQ(last_.doing, std::string());
  EXPECT_EQ(std::filesystem::last_write_time(dir_ / "out/tokens-00000.bin"), before);
}

TEST_F(MakeShards, RefuseADirectoryOfOthers) {
  make(job("out"));
  ShardJob other = job("out", "bpe:301");
  expect_config_error([&] { make(other); }, {dir_ / "out", "other --tokenizer"});
  other = job("out");
  other.shard_size = 1000;
  expect_config_error([&] { make(other); }, {"other --shard-size"});
  write_bytes(dir_ / "b", "another text");
  expect_config_error([&] { make(job("out")); }, {"other inputs"});
}

TEST_F(MakeShards, RefuseToGoOnWhereThereIsNoText) {
  ShardManifest m = make(job("out"));
  m.complete = false;
  for (ShardManifest::Next next : {ShardManifest::Next{0, 1 << 30, 0}, {2, 1, 0}, {9, 9, 9}}) {
    m.next = next;
    write_bytes(dir_ / "out/manifest.json", to_json(m));
    expect_data_error([&] { make(job("out")); },
                      {fmt::format("begins at byte {} of input {}", next.byte, next.input)});
  }
}

TEST_F(MakeShards, RefuseWhatIsNoText) {
  ShardJob j = job("out");
  auto refuses = [&](const std::string& part, Exit code) {
    expect_error([&] { make(j); }, {part}, code);
  };
  j.inputs = {dir_ / "nowhere"};
  refuses("No such file", Exit::not_found);
  j.inputs = {dir_.path()};
  refuses("not a plain file", Exit::data);
  disk().write(dir_ / "empty", "");
  j.inputs = {dir_ / "a", dir_ / "empty"};
  refuses("empty is empty", Exit::data);
  // Far behind the first piece, whose end is no end of a character.
  std::string text = "x";
  while (text.size() < (5 << 20)) text += "数";
  disk().write(dir_ / "bad", text + "\xFF");
  j.inputs = {dir_ / "bad"};
  std::string place = fmt::format("bad: byte {} is 0xFF", text.size());
  for (const char* kind : {"char", "bpe:300"}) {
    j.tokenizer = kind;
    refuses(place, Exit::data);
  }
  j = job("out2");
  for (const char* kind : {"words", "bpe:", "bpe:256", "bpe:x", "gpt2:", "bpe:9999999"}) {
    j.tokenizer = kind;
    refuses(fmt::format("tokenizer=`{}`", kind), Exit::config);
  }
  j.tokenizer = "gpt2:" + (dir_ / "nowhere");
  refuses("no vocab.json", Exit::not_found);
}

TEST_F(MakeShards, WriteNothingBesideFilesOfOthers) {
  for (const char* name : {"metrics_path", "config.toml", "config.json", "tokenizer.json"}) {
    std::string out = std::string("of_") + name;
    disk().make_directory(dir_ / out);
    disk().write((dir_ / out) + "/" + name, "mine");
    expect_config_error([&] { make(job(out)); },
                        {std::string("holds ") + name + ", and is not one of shards"});
    EXPECT_EQ(content(out), (std::map<std::string, std::string>{{name, "mine"}}));
  }
}

}  // namespace triax::text::make_shards_test
