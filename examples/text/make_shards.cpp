#include "examples/text/make_shards.h"

#include <sys/stat.h>

#include <algorithm>

#include "examples/text/text_data.h"
#include "examples/text/tokenizer/bpe.h"
#include "examples/text/tokenizer/characters.h"
#include "examples/text/tokenizer/tokenizer_files.h"
#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::text {
namespace {

using Input = ShardManifest::Input;
using Next = ShardManifest::Next;
using Cut = std::function<size_t(const Passage&)>;
using Tell = std::function<void(const ShardProgress&)>;

constexpr size_t piece_bytes = size_t{2} << 20, most_piece_bytes = size_t{64} << 20;

std::vector<Input> inputs_of(const ShardJob& job, const Files& files) {
  std::vector<Input> inputs;
  for (const std::string& path : job.inputs) {
    uint64_t bytes = files.open(path).size();
    check_input(bytes > 0, Exit::data, "data: {} is empty; expected a text", path);
    struct stat status {};
    ::stat(path.c_str(), &status);
    inputs.push_back({path, bytes, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
  }
  return inputs;
}

uint64_t bytes_before(const std::vector<Input>& inputs, size_t input, uint64_t byte) {
  for (size_t i = 0; i < input; ++i) byte += inputs[i].bytes;
  return byte;
}

struct Piece {
  std::string text;
  Source source;
  size_t input = 0;
  uint64_t begin = 0;
};

/// The inputs in pieces of a few MB, which end where `cut` says.
class Pieces {
 public:
  Pieces(const std::vector<Input>& inputs, const Files& files, Next from = {})
      : inputs_(inputs), files_(files), input_(from.input), byte_(from.byte) {}

  /// Reads the next piece; returns false at the end.
  bool next(const Cut& cut, Piece& piece) {
    while (input_ < inputs_.size() && byte_ >= inputs_[input_].bytes) {
      ++input_, byte_ = 0;
      file_.reset();
    }
    if (input_ == inputs_.size()) return false;
    const Input& input = inputs_[input_];
    if (!file_) file_.emplace(files_.open(input.path));
    piece.source = {"data: " + input.path, byte_};
    piece.input = input_, piece.begin = byte_;
    uint64_t left = input.bytes - byte_;
    size_t end = 0;
    for (size_t bytes = piece_bytes; end == 0; bytes *= 2) {
      check_input(bytes <= most_piece_bytes, Exit::data,
                  "data: {}: {} bytes from byte {} on are one word; expected text, and a tokenizer "
                  "whose merges do not reach across spaces",
                  input.path, most_piece_bytes, byte_);
      piece.text.resize(std::min<uint64_t>(left, bytes));
      file_->read_at(byte_, piece.text.data(), piece.text.size());
      end = cut({piece.text, piece.source, left > bytes, byte_ > 0});
    }
    piece.text.resize(end);
    byte_ += end;
    return true;
  }
  uint64_t done() const { return bytes_before(inputs_, input_, byte_); }

 private:
  const std::vector<Input>& inputs_;
  const Files& files_;
  std::optional<File> file_;
  size_t input_;
  uint64_t byte_;
};

size_t whole_characters(const Passage& p) {
  return p.goes_on ? last_character_end(p.text) : p.text.size();
}

Tokenizer characters_of(const std::vector<Input>& inputs, const Files& files, const Tell& tell) {
  CharacterSet characters;
  Pieces pieces(inputs, files);
  uint64_t all = bytes_before(inputs, inputs.size(), 0);
  for (Piece piece; pieces.next(whole_characters, piece);) {
    characters.add(piece.text, piece.source);
    tell({"collecting characters", pieces.done(), all});
  }
  return Tokenizer(characters.vocabulary("data"));
}

Tokenizer learned_of(const std::vector<Input>& inputs, int64_t size, const Files& files) {
  std::string text;
  Pieces pieces(inputs, files);
  for (Piece piece; text.size() < learned_from && pieces.next(whole_characters, piece);) {
    CharacterSet().add(piece.text, piece.source);  // throws if it is no UTF-8, with the place
    text += piece.text;
  }
  return learn_bpe(text, size);
}

Tokenizer tokenizer_for(const ShardJob& job, const std::vector<Input>& inputs, const Files& files,
                        const Tell& tell) {
  using Kind = TokenizerChoice::Kind;
  auto choice = tokenizer_choice(job.tokenizer);
  if (choice.kind == Kind::files) return read_tokenizer(choice.directory);
  if (choice.kind == Kind::characters) return characters_of(inputs, files, tell);
  tell({"learning tokens", 0,
        std::min<uint64_t>(learned_from, bytes_before(inputs, inputs.size(), 0))});
  return learned_of(inputs, choice.size, files);
}

/// Returns the manifest of what was done before, in `out`.
ShardManifest resumed(const ShardJob& job, const std::vector<Input>& inputs, const Files& files) {
  ShardManifest m = read_manifest(job.out);
  const char* other = m.inputs != inputs               ? "inputs (by path, size and time)"
                      : m.asked != job.tokenizer       ? "--tokenizer"
                      : m.shard_size != job.shard_size ? "--shard-size"
                                                       : nullptr;
  check_input(other == nullptr, Exit::config,
              "data: {} holds shards made with other {}\n  Nothing was changed. Choose another "
              "--out, or remove it.",
              job.out, other ? other : "");
  bool ends = m.next.input >= inputs.size();
  check_input(m.next.byte <= (ends ? 0 : inputs[m.next.input].bytes), Exit::data,
              "data: {}/{}: the next shard begins at byte {} of input {}, which is not there\n"
              "  Remove {}, and make the shards again.",
              job.out, ShardManifest::name, m.next.byte, m.next.input, job.out);
  for (auto& shard : m.shards) {
    uint64_t bytes = files.open(job.out + "/" + shard.file).size();
    check_input(bytes == uint64_t(shard.tokens) * uint64_t(m.width), Exit::data,
                "data: {}/{} has {} bytes; expected {} tokens\n  Remove {}, and make the shards "
                "again.",
                job.out, shard.file, bytes, shard.tokens, job.out);
  }
  return m;
}

Tokenizer saved_tokenizer(const ShardManifest& m, const ShardJob& job) {
  auto tokenizer = read_tokenizer(job.out);
  check_input(tokenizer.hash() == m.tokenizer, Exit::data,
              "data: {}/tokenizer.json has hash {}; expected {}, of the tokenizer that the shards "
              "were made with",
              job.out, tokenizer.hash(), printable(m.tokenizer));
  return tokenizer;
}

/// Writes shards and keeps the manifest.
class ShardWriter {
 public:
  ShardWriter(const std::string& directory, ShardManifest& manifest, const Files& files)
      : directory_(directory), manifest_(manifest), files_(files) {}

  /// Returns the number of tokens that still go into the shard.
  size_t room() const { return size_t(manifest_.shard_size - shard_.tokens); }
  void append(std::span<const int32_t> tokens) {
    if (!file_) begin();
    if (manifest_.width == 2) {
      narrow_.assign(tokens.begin(), tokens.end());
      write(narrow_.data(), narrow_.size() * sizeof narrow_[0]);
    } else {
      write(tokens.data(), tokens.size_bytes());
    }
    shard_.tokens += std::ssize(tokens);
  }
  /// Gives the shard, if there is one, its name; `next`: where the one after it begins.
  void finish(const Next& next) {
    if (!file_) return;
    file_->sync();
    file_.reset();
    files_.rename(unfinished(), directory_ + "/" + shard_.file);
    files_.sync_directory(directory_);
    manifest_.shards.push_back(std::exchange(shard_, {}));
    manifest_.next = next;
    save();
  }
  void save() {
    parallel::replace_file(directory_ + "/" + ShardManifest::name, to_json(manifest_), files_);
  }
  void discard() {
    file_.reset();
    files_.remove(unfinished());
  }

 private:
  std::string unfinished() const {
    return fmt::format("{}/tokens-{:05}.bin.tmp", directory_, manifest_.shards.size());
  }
  void begin() {
    files_.remove(unfinished());  // left by a process that was killed
    file_.emplace(files_.create(unfinished()));
    shard_.file = fmt::format("tokens-{:05}.bin", manifest_.shards.size());
  }
  void write(const void* from, size_t bytes) {
    shard_.crc32c = crc32c(from, bytes, shard_.crc32c);
    file_->write(from, bytes);
  }

  std::string directory_;
  ShardManifest& manifest_;
  const Files& files_;
  std::optional<File> file_;
  ShardManifest::Shard shard_;
  std::vector<uint16_t> narrow_;
};

void write_shards(const Tokenizer& tokenizer, ShardManifest& m, ShardWriter& to, const Files& files,
                  const Tell& tell) {
  Pieces pieces(m.inputs, files, m.next);
  uint64_t all = bytes_before(m.inputs, m.inputs.size(), 0);
  int64_t written = m.tokens();
  auto skip = size_t(m.next.skip);
  std::vector<int32_t> tokens;
  auto encode = [&](const Passage& passage) {
    tokens.clear();
    return tokenizer.encode(passage, tokens);
  };
  for (Piece piece; pieces.next(encode, piece); skip = 0) {
    check_input(skip <= tokens.size(), Exit::data,
                "data: the manifest skips {} of {} tokens of {}; is it of another text?", skip,
                tokens.size(), m.inputs[piece.input].path);
    for (size_t at = skip; at < tokens.size();) {
      size_t count = std::min(tokens.size() - at, to.room());
      to.append(std::span(tokens).subspan(at, count));
      at += count;
      written += int64_t(count);
      if (to.room() == 0) to.finish({piece.input, piece.begin, int64_t(at)});
    }
    tell({"tokenizing", pieces.done(), all, written});
  }
  to.finish({m.inputs.size(), 0, 0});
  m.complete = true;
  to.save();
}

}  // namespace

ShardManifest make_shards(const ShardJob& job, const Tell& tell, const Files& files) {
  auto inputs = inputs_of(job, files);
  (void)tokenizer_choice(job.tokenizer);
  auto holds = [&](const char* name) { return files.exists(job.out + "/" + name); };
  bool again = holds(ShardManifest::name);
  // A run's directory, or an exported model, would have two tokenizers.
  bool killed = holds("lock");  // killed before its first manifest
  for (const char* name : {"metrics_path", "config.toml", "config.json", "tokenizer.json"})
    check_input(again || !holds(name) || (killed && name == std::string_view("tokenizer.json")),
                Exit::config,
                "data: {} holds {}, and is not one of shards; expected an empty or a new "
                "directory\n  Choose another --out. Nothing was changed.",
                job.out, name);
  files.make_directory(job.out);
  parallel::RunLock lock(job.out);
  ShardManifest m;
  if (again) m = resumed(job, inputs, files);
  Tokenizer tokenizer = again ? saved_tokenizer(m, job) : tokenizer_for(job, inputs, files, tell);
  if (m.complete) return m;
  ShardWriter to(job.out, m, files);
  if (!again) {
    m = {.width = tokenizer.size() <= 1 << 16 ? 2 : 4,
         .vocabulary = tokenizer.size(),
         .tokenizer = tokenizer.hash(),
         .asked = job.tokenizer,
         .shard_size = job.shard_size,
         .inputs = inputs};
    parallel::replace_file(job.out + "/tokenizer.json", tokenizer.json(), files);
    keep_tokenizer_files(with_tokenizer_files(tokenizer_choice(job.tokenizer).directory), job.out,
                         files);
    to.save();
  }
  try {
    write_shards(tokenizer, m, to, files, tell);
  } catch (const Error&) {
    try {
      to.discard();
    } catch (const Error&) {  // the first one says what happened
    }
    throw;
  }
  return m;
}

}  // namespace triax::text
