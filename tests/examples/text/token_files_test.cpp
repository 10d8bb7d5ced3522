#include "examples/text/token_files.h"

#include <gtest/gtest.h>

#include "examples/text/make_shards.h"
#include "examples/text/text_data.h"
#include "examples/text/tokenizer/bpe.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::text::token_files_test {

using namespace test;
using Ids = std::vector<int32_t>;

template <class T> std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string u16(int count, int first = 0) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(uint16_t(first + i));
  return bytes_of(tokens);
}
std::string with_header(int32_t version, int32_t count, const std::string& tokens,
                        int32_t magic = 20240520) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return bytes_of(header) + tokens;
}
Ids all_of(const Tokens& tokens) {
  Ids all(size_t(tokens.size()));
  tokens.read(0, all);
  return all;
}
Ids first_input(const nn::Samples& samples) {
  std::vector<int64_t> index{0};
  return samples.batch(index).input.to_host<int32_t>();
}

TEST(TokenFiles, ReadsThoseOfNanoGpt) {
  TemporaryDirectory dir;
  write_bytes(dir / "train.bin", u16(100));
  write_bytes(dir / "val.bin", u16(20, 300));
  Text text = read({.data = dir.path()}, 8);
  EXPECT_EQ(text.tokenizer.size(), 320);  // nobody says, so the largest token does
  EXPECT_EQ(text.data.train_tokens(), 100);
  EXPECT_EQ(text.data.val_tokens(), 19);
  EXPECT_EQ(first_input(*text.data.train_samples()), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(first_input(*text.data.val_samples()), (Ids{300, 301, 302, 303, 304, 305, 306, 307}));
  // One file: its end is held out.
  Text one = read({.data = dir / "train.bin", .val_fraction = 0.25}, 8);
  EXPECT_EQ(one.data.train_tokens(), 75);
  expect_data_error([&] { (void)one.tokenizer.encode("a"); }, {"without a tokenizer", "gpt2:DIR"});
  auto saved = Tokenizer::from_json(text.tokenizer.json(), "saved");
  EXPECT_EQ(saved.size(), 320);
  EXPECT_EQ(saved.hash(), text.tokenizer.hash());
}

TEST(TokenFiles, ReadsThoseOfLlmC) {
  TemporaryDirectory dir;
  write_bytes(dir / "tiny_train_000001.bin", with_header(1, 30, u16(30)));
  write_bytes(dir / "tiny_train_000002.bin", with_header(1, 30, u16(30, 30)));
  write_bytes(dir / "tiny_val_000000.bin", with_header(1, 10, u16(10, 90)));
  Text text = read({.data = dir.path()}, 8);
  EXPECT_EQ(text.data.train_tokens(), 60);
  EXPECT_EQ(text.data.val_tokens(), 9);
  // A window that begins in one file and ends in the next.
  std::vector<int64_t> index{26};
  EXPECT_EQ(text.data.train_samples()->batch(index).target.to_host<int32_t>(),
            (Ids{27, 28, 29, 30, 31, 32, 33, 34}));
}

TEST(TokenFiles, ReadsThoseOfLlmCWithTokensOfLlama3) {
  TemporaryDirectory dir;
  std::vector<uint32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = uint32_t(100'000 + i);
  write_bytes(dir / "f.bin", with_header(7, 40, bytes_of(tokens), 20240801));
  Text text = read({.data = dir / "f.bin"}, 8);
  EXPECT_EQ(text.tokenizer.size(), 100'040);
  EXPECT_EQ(first_input(*text.data.train_samples())[7], 100'007);
}

/// Which files of a directory are what, by their names without `.bin`.
std::string roles(const std::vector<std::string>& names) {
  TemporaryDirectory dir;
  for (auto& name : names) write_bytes(dir / (name + ".bin"), u16(40));
  std::string said = read({.data = dir.path()}, 8).task().description;
  return said.substr(dir.path().size() + 2, said.find('\n') - dir.path().size() - 2);
}

TEST(TokenFiles, AreTrainedOnByTheWordsOfTheirNames) {
  EXPECT_EQ(roles({"train", "val", "test"}),
            "trains on train.bin; holds out val.bin; leaves out test.bin");
  EXPECT_EQ(roles({"festival", "interval", "medieval", "retrieval", "train_evaluation"}),
            "trains on 5 files, festival.bin to train_evaluation.bin");
  EXPECT_EQ(roles({"contest", "latest", "train"}), "trains on contest.bin, latest.bin, train.bin");
  for (const char* name : {"val", "VAL", "valid", "validation-0", "x_val_000", "fineweb.val.3",
                           "val0", "train_val", "eval", "dev", "Validation", "valset", "heldout",
                           "held_out", "validset", "validation-set", "validationset", "devdata"})
    EXPECT_EQ(roles({"a", name}), fmt::format("trains on a.bin; holds out {}.bin", name));
  for (const char* name : {"test", "x_test_000", "test-1", "TEST", "test_val", "testset"})
    EXPECT_EQ(roles({"a", name}), fmt::format("trains on a.bin; leaves out {}.bin", name));
}

TEST(TokenFiles, WithNoneToTrainOnAreRefused) {
  TemporaryDirectory dir;
  write_bytes(dir / "val.bin", u16(40));
  write_bytes(dir / "test.bin", u16(40));
  EXPECT_EQ(error_of([&] { read({.data = dir.path()}, 8); }, Exit::data),
            "data: " + dir.path() +
                " is a directory without tokens to train on (holds out val.bin; leaves out "
                "test.bin); expected a text file, or a directory that `data` has made, or one with "
                "files like train.bin and val.bin");
  EXPECT_EQ(read({.data = dir / "test.bin"}, 8).data.tokens(), 40) << "it is asked for by its name";
}

/// Is a file of these bytes taken for 16-bit tokens?
void expect_taken(const std::string& bytes) {
  TemporaryDirectory dir;
  write_bytes(dir / "f.bin", bytes);
  EXPECT_EQ(find_tokens(dir / "f.bin").training[0].tokens, int64_t(bytes.size() / 2));
}
/// What is said of a file of these bytes.
std::string refusal(const std::string& bytes) {
  TemporaryDirectory dir;
  write_bytes(dir / "f.bin", bytes);
  std::string said = error_of([&] { find_tokens(dir / "f.bin"); }, Exit::data);
  size_t at = said.find("f.bin");
  return at == said.npos ? said : said.substr(at);
}
/// `count` pseudo-random values below `end`.
template <class T> std::vector<T> drawn(size_t count, uint64_t end) {
  std::vector<T> all(count);
  uint64_t state = 1;
  for (T& value : all) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = T((state >> 33) % end);
  }
  return all;
}

TEST(TokenFiles, OfWiderTokensAreNotReadAs16Bits) {
  for (uint64_t vocabulary : {4, 65, 300, 50257, 65536, 100'000, 151'936, 262'144, 500'000}) {
    std::string said = refusal(bytes_of(drawn<uint32_t>(500, vocabulary)));
    EXPECT_TRUE(said.starts_with("f.bin looks like 32-bit tokens, of which 500 fit;")) << said;
    EXPECT_TRUE(says(said, "20240801, 7, 500"));
    EXPECT_TRUE(says(said, "20240520, 1, 1000")) << "for those that are 16-bit: " << said;
    said = refusal(bytes_of(drawn<int64_t>(500, vocabulary)));
    EXPECT_TRUE(said.starts_with("f.bin looks like 64-bit tokens, of which 500 fit;")) << said;
    EXPECT_TRUE(says(said, "20240801, 7, 500"));
  }
  EXPECT_TRUE(refusal(bytes_of(drawn<int32_t>(64, 50257))).starts_with("f.bin looks like 32-bit"));
}

TEST(TokenFiles, Of16BitsAreNotMistaken) {
  for (uint64_t vocabulary : {1, 2, 3, 16, 65, 256, 300, 4096, 50257, 65536})
    for (size_t count : {1, 2, 10, 31, 64, 200, 5000})
      expect_taken(bytes_of(drawn<uint16_t>(count, vocabulary)));
  auto alternating = drawn<uint16_t>(4000, 50000);
  for (size_t i = 1; i < alternating.size(); i += 2) alternating[i] %= 256;
  expect_taken(bytes_of(alternating));
  expect_taken(bytes_of(std::vector<uint16_t>(500, 0)));
  std::vector<uint16_t> one_document(200, 0);  // and padding
  for (size_t i = 0; i < 100; ++i) one_document[i] = uint16_t(1000 + i);
  expect_taken(bytes_of(one_document));
  std::vector<uint16_t> seven(600, 7);  // every second token
  for (size_t i = 0; i < seven.size(); i += 2) seven[i] = uint16_t(300 + i);
  expect_taken(bytes_of(seven));
  expect_taken(u16(100, 30000));            // whose bytes are letters
  auto digits = drawn<uint16_t>(2000, 10);  // with commas and line ends in between
  for (size_t i = 0; i < digits.size(); ++i) digits[i] = i % 2 ? i % 16 != 1 : digits[i] + 2;
  expect_taken(bytes_of(digits));
}

TEST(TokenFiles, AreNoTexts) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "It was the best of times, née 1859.\n";
  for (auto& bytes : {text, text + "x", text.substr(0, 80)})
    EXPECT_EQ(refusal(bytes),
              "f.bin is a text; expected tokens in a file *.bin\n  Give it another name, "
              "such as .txt, or make tokens of it with `data`.");
}

/// The index of one document that Megatron-LM writes beside its tokens.
std::string megatron_index(uint8_t dtype, int32_t tokens, int64_t first = 0) {
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of(std::vector<uint64_t>{1});
  index += char(dtype);
  index += bytes_of(std::vector<uint64_t>{1, 2});
  index += bytes_of(std::vector<int32_t>{tokens});
  return index + bytes_of(std::vector<int64_t>{first, 0, 1});
}

TEST(TokenFiles, OfMegatronLmHaveTheDtypeOfTheirIndex) {
  TemporaryDirectory dir;
  auto tokens = [&](const std::string& bytes, const std::string& index) {
    write_bytes(dir / "x_text_document.bin", bytes);
    write_bytes(dir / "x_text_document.idx", index);
    int64_t largest = 0;
    return all_of(*map_tokens(find_tokens(dir.path()).training, 0, largest));
  };
  auto wide = drawn<int32_t>(500, 100'000);
  auto narrow = drawn<uint16_t>(500, 50'257);
  EXPECT_EQ(tokens(bytes_of(wide), megatron_index(4, 500)), wide);
  EXPECT_EQ(tokens(bytes_of(narrow), megatron_index(8, 500)), Ids(narrow.begin(), narrow.end()));
  expect_data_error([&] { tokens(bytes_of(drawn<int64_t>(500, 9)), megatron_index(5, 500)); },
                    {"x_text_document.idx", "dtype 5", "int32 (4) or uint16 (8)"});
  expect_data_error([&] { tokens(bytes_of(wide), megatron_index(4, 499)); },
                    {"x_text_document.bin", "2000 bytes", "1996"});
  expect_data_error([&] { tokens(bytes_of(wide), megatron_index(4, 500).substr(0, 40)); },
                    {"x_text_document.idx", "cut off"});
  // Of something else: the tokens say what they are.
  EXPECT_EQ(tokens(bytes_of(narrow), "an index"), Ids(narrow.begin(), narrow.end()));
  expect_data_error([&] { tokens(bytes_of(wide), "an index"); }, {"32-bit tokens"});
}

TEST(TokenFiles, RefusesDamagedOnes) {
  TemporaryDirectory dir;
  auto refuses = [&](const std::string& bytes, const std::string& part) {
    write_bytes(dir / "f.bin", bytes);
    expect_data_error([&] { read({.data = dir / "f.bin"}, 8); }, {dir / "f.bin", part});
  };
  refuses("", "is empty");
  refuses(u16(50) + "x", "101 bytes; expected an even number");
  refuses(with_header(2, 50, u16(50)), "version 2");
  refuses(with_header(1, -1, u16(50)), "-1 tokens");
  refuses(with_header(1, 51, u16(50)), "has 1124 bytes; expected 1126, for the 51 tokens");
  refuses(u16(8), "too few for a window");
  std::vector<uint32_t> huge{1, 2147483646};  // a model of so many rows would need all memory
  refuses(with_header(7, 2, bytes_of(huge), 20240801),
          "token 1 is 2147483646, which even a vocabulary of 4194304 tokens does not have");
  TemporaryDirectory empty;
  expect_data_error([&] { read({.data = empty.path()}, 8); }, {empty.path(), "without tokens"});
  expect_error([&] { read({.data = dir / "no.bin"}, 8); }, {"No such file"}, Exit::not_found);
  expect_config_error([&] { read({.data = dir / "f.bin", .tokenizer = "bpe:300"}, 8); },
                      {"tokenizer=bpe:300", "tokens already"});
}

class Shards : public testing::Test {
 protected:
  Shards() {
    for (int i = 0; i < 3000; ++i)
      text_ += i % 7 == 0 ? " " : std::string(1, char('a' + i * i % 23));
    disk().write(dir_ / "text", text_);
    make_shards(
        {.inputs = {dir_ / "text"}, .tokenizer = "bpe:300", .out = shards_, .shard_size = 400},
        [](auto&) {});
  }
  TextOptions options() const { return {.data = shards_}; }
  void refuses(const std::string& file, const std::string& bytes, const std::string& part) {
    std::string path = shards_ + "/" + file, before = read_bytes(path);
    write_bytes(path, bytes);
    expect_data_error([&] { read(options(), 8); }, {shards_, part});
    write_bytes(path, before);
    read(options(), 8);
  }

  TemporaryDirectory dir_;
  std::string shards_ = dir_ / "shards", text_;
};

TEST_F(Shards, AreTheSameDataAsTheirText) {
  Text shards = read(options(), 8);
  Text text = read({.data = dir_ / "text", .tokenizer = "bpe:300"}, 8);
  EXPECT_EQ(shards.tokenizer.hash(), text.tokenizer.hash());
  EXPECT_EQ(shards.data.train_samples()->identity(), text.data.train_samples()->identity());
  EXPECT_EQ(shards.data.val_samples()->identity(), text.data.val_samples()->identity());
  EXPECT_EQ(shards.data.unigram_entropy(), text.data.unigram_entropy());
  int64_t largest = 0;
  auto tokens = map_tokens(find_tokens(shards_).training, 0, largest);
  EXPECT_EQ(shards.tokenizer.decode(all_of(*tokens)), text_);
}

TEST_F(Shards, AreMixedInTheirShares) {
  TemporaryDirectory other;
  disk().write(other / "text", std::string(200, 'z'));
  std::string gpt2 = "gpt2:" + shards_;
  make_shards({.inputs = {other / "text"}, .tokenizer = gpt2, .out = other / "few"}, [](auto&) {});
  Text few = read({.data = other / "few"}, 8), many = read(options(), 8);
  Text both = read({.data = shards_ + ":3," + (other / "few") + ":1"}, 8);
  auto task = both.task();
  // 3 of 4 samples are of the larger one; each of its samples is there once.
  int64_t large = many.data.train_samples()->count(), small = few.data.train_samples()->count();
  ASSERT_GT(large, 3 * small);
  EXPECT_EQ(task.samples->count(), large + (large + 1) / 3);
  auto sample = [](const nn::Samples& s, int64_t i) {
    return s.batch(std::vector<int64_t>{i}).input.to_host<int32_t>();
  };
  EXPECT_EQ(sample(*task.samples, large - 1), sample(*many.data.train_samples(), large - 1));
  EXPECT_EQ(sample(*task.samples, large), sample(*few.data.train_samples(), 0));
  EXPECT_EQ(sample(*task.samples, large + small + 2), sample(*few.data.train_samples(), 2));
  std::vector<int64_t> indices{1, large + 1, -1};
  nn::Batch batch = task.samples->batch(indices);
  EXPECT_EQ(batch.input.shape(), Shape({3, 8}));
  EXPECT_EQ(batch.target.narrow(0, 2, 1).contiguous().to_host<int32_t>(), Ids(8, -1));
  EXPECT_EQ(task.held_out->count(),
            many.data.val_samples()->count() + few.data.val_samples()->count());
  EXPECT_NE(task.samples->identity(),
            read({.data = shards_ + ":2," + (other / "few") + ":1"}, 8).task().samples->identity());
  // Texts that would have a vocabulary each, or a share that is none.
  expect_config_error([&] { read({.data = (dir_ / "text") + ":1," + (other / "text") + ":1"}, 8); },
                      {"different tokenizers", "gpt2:DIR"});
  expect_config_error([&] { read({.data = shards_ + ":0," + shards_ + ":1"}, 8); },
                      {"is 0; expected"});
  expect_error([&] { read({.data = "a:b,c"}, 8); }, {"open a:b,c"}, Exit::not_found);
}

TEST_F(Shards, AreRefusedIfDamaged) {
  std::string shard = read_bytes(shards_ + "/tokens-00001.bin"), flipped = shard;
  flipped[100] = char(flipped[100] ^ 4);
  refuses("tokens-00001.bin", flipped, "tokens-00001.bin is damaged: crc32c");
  refuses("tokens-00001.bin", shard.substr(0, 500), "has 500 bytes; expected 800");
  refuses("tokens-00001.bin", "", "has 0 bytes; expected 800");
  refuses("tokenizer.json", Tokenizer::from_text("abc").json(), "is not the tokenizer that made");
  refuses("tokenizer.json", "rubbish", "does not start with an open brace");
  std::string manifest = read_bytes(shards_ + "/manifest.json");
  auto changed = [&](const std::string& from, const std::string& to) {
    size_t at = manifest.find(from);
    EXPECT_NE(at, manifest.npos) << from;
    return std::string(manifest).replace(at, from.size(), to);
  };
  refuses("manifest.json", "{}", "has no format");
  refuses("manifest.json", manifest.substr(0, 200), "not JSON");
  refuses("manifest.json", changed("\"complete\": true", "\"complete\": false"), "is not complete");
  refuses("manifest.json", changed("triax-tokens", "others"), "another format");
  refuses("manifest.json", changed("\"u16\"", "\"f16\""), "expected u16 or u32");
  refuses("manifest.json", changed("\"u16\"", "\"u32\""), "expected 1600");
  refuses("manifest.json", changed("tokens-00001", "../shards/x"), "is not the name of a file");
  refuses("manifest.json", changed("\"tokens\": 400", "\"tokens\": 401"), "tokens of its shards");
}

TEST_F(Shards, AreRefusedWithoutTheirManifest) {
  std::filesystem::remove(shards_ + "/manifest.json");
  for (const std::string& path : {shards_, shards_ + "/tokens-00001.bin"})
    expect_data_error([&] { find_tokens(path); },
                      {shards_, "is one of the shards", "manifest.json"});
}

TEST(TokenFiles, AreNoShardsBecauseOfTheirNames) {
  TemporaryDirectory dir;
  write_bytes(dir / "tokens-train.bin", u16(100));
  write_bytes(dir / "tokens-valid.bin", u16(20));
  EXPECT_EQ(find_tokens(dir.path()).training.size(), 1);
}

TEST_F(Shards, AreRefusedWithAnotherVocabulary) {
  Text text = read(options(), 8);
  expect_config_error([&] { vocabulary(299, text.tokenizer); },
                      {"vocab=299 is less than the 300 tokens"});
  TemporaryDirectory other;
  disk().write(other / "tokenizer.json", learn_bpe("ab ab", 300).json());
  expect_data_error([&] { read({.data = shards_, .tokenizer = "gpt2:" + other.path()}, 8); },
                    {"another tokenizer than --tokenizer gpt2:"});
  // Tokens that the given tokenizer does not have.
  write_bytes(other / "train.bin", u16(400));
  std::filesystem::rename(other / "tokenizer.json", dir_ / "tokenizer.json");
  EXPECT_EQ(
      error_of([&] { read({.data = other / "train.bin", .tokenizer = "gpt2:" + dir_.path()}, 8); },
               Exit::data),
      "data: " + (other / "train.bin") +
          ": token 399 is 399, which the vocabulary of 258 tokens does not have\n  The file "
          "was made with another tokenizer, or is no file of 16-bit tokens.");
}

}  // namespace triax::text::token_files_test
