#include "examples/text/token_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "examples/text/tokenizer/utf8.h"
#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/scoped.h"
#include "triax/parallel/settings/setting.h"

namespace triax::text {
namespace {

// megatron/core/datasets/indexed_dataset.py of Megatron-LM: magic, version u64, dtype u8, number of
// sequences u64, of documents u64; then of each sequence its tokens as i32; then its first byte in
// the file of tokens as i64.
constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr size_t head_bytes = 34;
constexpr const char* dtypes[] = {"",      "uint8",   "int8",    "int16", "int32",
                                  "int64", "float64", "float32", "uint16"};

template <class T> T value_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string beginning_of(const File& file, uint64_t at_most) {
  std::string bytes(std::min(file.size(), at_most), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

/// True if these are likely the first bytes of a text. Tokens hardly ever are UTF-8 without control
/// characters, with blanks at even and at odd places.
bool is_text(std::string_view bytes) {
  if (bytes.size() < 64 || !parallel::is_plain_text(bytes.substr(0, last_character_end(bytes))))
    return false;
  bool blank[2] = {};
  for (size_t i = 0; i < bytes.size(); ++i) {
    char c = bytes[i];
    if (uint8_t(c) < 0x20 && std::string_view("\t\n\r\f").find(c) == std::string_view::npos)
      return false;
    blank[i % 2] |= c == ' ' || c == '\n';
  }
  return blank[0] && blank[1];
}

/// Returns the likely bytes of a token, 8, 4 or 2. Tokens of 4 have an upper half that is 0, or is
/// small and often 0 while lower ones are of any size, and mostly below the lower one; in those of
/// 8, two more halves are 0. Every second of a sequence of 16-bit tokens is hardly ever so.
int likely_width(std::string_view bytes) {
  constexpr size_t least = 32, largest = 7, any_size = 1 << 14;
  for (size_t halves : {4, 2}) {
    size_t tokens = bytes.size() / (2 * halves), zeros = 0, above = 0, high = 0, low = 0, rest = 0;
    auto half = [&](size_t token, size_t i) -> uint16_t {
      auto value = value_at<uint16_t>(bytes, 2 * (token * halves + i));
      return i > 0 && value == 0xFFFF ? 0 : value;  // a number below 0, such as a masked label
    };
    for (size_t i = 0; i < tokens; ++i) {
      high = std::max<size_t>(high, half(i, 1));
      zeros += half(i, 1) == 0;
      for (size_t k = 2; k < halves; ++k) rest |= half(i, k);
    }
    for (size_t i = 0; i < tokens; ++i) {
      low = std::max<size_t>(low, half(i, 0));
      above += half(i, 0) > high;
    }
    bool small = high == 0 || (high <= largest && low >= any_size);
    if (tokens >= least && rest == 0 && small && 16 * zeros >= tokens && 2 * above >= tokens)
      return int(2 * halves);
  }
  return 2;
}

/// Returns what Megatron-LM's index, x.idx, says of the tokens in x.bin, a path; none if there is
/// no such file, or it is no index. Untrusted: throws Error 65 if it is cut off, or has another
/// dtype than int32 and uint16.
std::optional<TokenFile> indexed_file(const std::string& path) {
  std::string name = std::filesystem::path(path).replace_extension(".idx");
  if (!disk().is_file(name)) return {};
  File file = disk().open(name);
  std::string head = beginning_of(file, head_bytes);
  if (!head.starts_with(magic)) return {};
  uint64_t count = head.size() < head_bytes ? 0 : value_at<uint64_t>(head, 18);
  bool whole = count > 0 && count <= file.size() / 12 && head_bytes + 12 * count <= file.size();
  check_input(whole, Exit::data, "data: {} is cut off: {} bytes do not hold its {} sequences", name,
              file.size(), count);
  auto dtype = value_at<uint8_t>(head, 17);
  check_input(value_at<uint64_t>(head, 9) == 1 && (dtype == 4 || dtype == 8), Exit::data,
              "data: {}: version {}, dtype {}{}; expected version 1, and tokens as int32 (4) or "
              "uint16 (8)\n  docs/data.md says how to convert them.",
              name, value_at<uint64_t>(head, 9), dtype,
              dtype < std::size(dtypes) ? fmt::format(" ({})", dtypes[dtype]) : "");
  int32_t tokens = 0;
  int64_t first = 0;
  file.read_at(head_bytes + 4 * (count - 1), &tokens, sizeof tokens);
  file.read_at(head_bytes + 4 * count + 8 * (count - 1), &first, sizeof first);
  check_input(tokens >= 0 && first >= 0, Exit::data,
              "data: {}: its last sequence has {} tokens from byte {} on; expected 0 or more", name,
              tokens, first);
  int width = dtype == 4 ? 4 : 2;
  return TokenFile{.path = path, .tokens = first / width + tokens, .width = width};
}

/// Throws Error 65 for a file that is not of 16-bit tokens: for an odd size, for a text, and where
/// 16-bit tokens would be a strange sequence, but 32-bit or 64-bit ones would not.
void check_is_u16(const File& file) {
  uint64_t bytes = file.size();
  std::string begin = beginning_of(file, 1 << 17);
  check_input(
      !is_text(begin), Exit::data,
      "data: {} is a text; expected tokens in a file *.bin\n  Give it another name, such as "
      ".txt, or make tokens of it with `data`.",
      file.path());
  check_input(bytes % 2 == 0, Exit::data,
              "data: {} has {} bytes; expected an even number, of 16-bit tokens", file.path(),
              bytes);
  auto width = uint64_t(likely_width(begin));
  check_input(width == 2, Exit::data,
              "data: {} looks like {}-bit tokens, of which {} fit; without a header a file is read "
              "as 16-bit tokens\n  Convert it (docs/data.md): 32-bit tokens behind 256 int32 that "
              "begin with 20240801, 7, {}; or, if they are 16-bit, with 20240520, 1, {}.",
              file.path(), 8 * width, bytes / width, bytes / width, bytes / 2);
}

namespace fs = std::filesystem;
using Header = std::array<int32_t, 256>;  // llm.c's
/// The kinds of headers, of files with the tokens of GPT-2 (u16) and of Llama 3 (u32).
struct HeaderKind {
  int32_t magic, version;
  int width;  ///< bytes of a token
};
constexpr HeaderKind header_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

/// The tokens of a file in memory, read-only.
class MappedTokens : Immovable {
 public:
  explicit MappedTokens(const TokenFile& file)
      : file_(file), bytes_(disk().open(file.path).size()) {
    int descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    void* at = descriptor < 0
                   ? MAP_FAILED
                   : ::mmap(nullptr, size_t(bytes_), PROT_READ, MAP_SHARED, descriptor, 0);
    int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    check_input(at != MAP_FAILED, Exit::io, "files: map {}: {}", file.path, std::strerror(error));
    data_ = static_cast<const char*>(at);
  }
  ~MappedTokens() { ::munmap(const_cast<char*>(data_), size_t(bytes_)); }

  int64_t size() const { return file_.tokens; }
  void read(int64_t begin, std::span<int32_t> to) const {
    const char* from = data_ + file_.header + uint64_t(begin) * uint64_t(file_.width);
    if (file_.width == 2) widen<uint16_t>(from, to);
    else std::memcpy(to.data(), from, to.size_bytes());
  }
  /// Returns the largest token; throws Error 65 if the file is not what is known of it.
  int64_t verify(int64_t vocabulary) const {
    const char* bytes = data_ + file_.header;
    size_t count = size_t(file_.tokens) * size_t(file_.width);
    uint32_t crc = file_.crc32c ? crc32c(bytes, count) : 0;
    check_input(!file_.crc32c || crc == *file_.crc32c, Exit::data,
                "data: {} is damaged: crc32c {:08x}; expected {:08x}\n  Remove its directory, and "
                "make the shards again.",
                file_.path, crc, file_.crc32c.value_or(0));
    auto [place, largest] = file_.width == 2 ? largest_of<uint16_t>() : largest_of<uint32_t>();
    int64_t all = vocabulary > 0 ? vocabulary : most_tokens;
    const char* which = vocabulary > 0 ? "the" : "even a";
    check_input(largest < all, Exit::data,
                "data: {}: token {} is {}, which {} vocabulary of {} tokens does not have\n"
                "  The file was made with another tokenizer, or is no file of {}-bit tokens.",
                file_.path, place, largest, which, all, 8 * file_.width);
    return largest;
  }

 private:
  template <class T> static void widen(const char* from, std::span<int32_t> to) {
    for (size_t i = 0; i < to.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      to[i] = int32_t(value);
    }
  }
  template <class T> std::pair<int64_t, int64_t> largest_of() const {
    auto* first = reinterpret_cast<const T*>(data_ + file_.header);
    auto* found = std::max_element(first, first + file_.tokens);
    return {found - first, int64_t(*found)};
  }

  TokenFile file_;
  uint64_t bytes_;
  const char* data_ = nullptr;
};

class JoinedTokens : public Tokens {
 public:
  void add(std::unique_ptr<MappedTokens> file) {
    ends_.push_back(size() + file->size());
    files_.push_back(std::move(file));
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(int64_t begin, std::span<int32_t> to) const override {
    auto i = size_t(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; !to.empty(); ++i) {
      auto part = to.first(std::min(to.size(), size_t(ends_[i] - begin)));
      files_[i]->read(begin - (ends_[i] - files_[i]->size()), part);
      to = to.subspan(part.size());
      begin += std::ssize(part);
    }
  }

 private:
  std::vector<std::unique_ptr<MappedTokens>> files_;
  std::vector<int64_t> ends_;
};

/// Checks the size against that of the file's header or its manifest.
void check_size(const TokenFile& f, const char* who) {
  uint64_t bytes = disk().open(f.path).size();
  uint64_t expected = f.header + uint64_t(f.tokens) * uint64_t(f.width);
  check_input(bytes == expected, Exit::data,
              "data: {} has {} bytes; expected {}, for the {} tokens that {} says", f.path, bytes,
              expected, f.tokens, who);
}

/// Returns a file of nanoGPT, Megatron-LM or llm.c.
TokenFile plain_file(const std::string& path) {
  File file = disk().open(path);
  uint64_t bytes = file.size();
  check_input(bytes > 0, Exit::data, "data: {} is empty; expected 16-bit tokens", path);
  Header header{};
  if (bytes >= sizeof header) file.read_at(0, header.data(), sizeof header);
  auto kind = std::ranges::find(header_kinds, header[0], &HeaderKind::magic);
  if (kind == std::end(header_kinds)) {
    if (auto f = indexed_file(path)) return check_size(*f, "its index"), *f;
    check_is_u16(file);
    return {.path = path, .tokens = int64_t(bytes / 2)};
  }
  check_input(header[1] == kind->version && header[2] > 0, Exit::data,
              "data: {}: its header has version {} and {} tokens; expected version {}, 1 or more",
              path, header[1], header[2], kind->version);
  TokenFile f{.path = path, .tokens = header[2], .width = kind->width, .header = sizeof header};
  check_size(f, "its header");
  return f;
}

TokenSet shards_of(const std::string& directory) {
  ShardManifest m = read_manifest(directory);
  check_input(m.complete, Exit::data,
              "data: {} is not complete: its shards hold {} tokens so far\n  Run the `data` "
              "command that makes them again; it goes on where it was.",
              directory, m.tokens());
  TokenSet set{.tokenizer = find_tokenizer(directory)};
  check_input(set.tokenizer && set.tokenizer->hash() == m.tokenizer, Exit::data,
              "data: {}/tokenizer.json is not the tokenizer that made the shards: hash {}; "
              "expected {}",
              directory, set.tokenizer ? set.tokenizer->hash() : "of no file",
              printable(m.tokenizer));
  set.vocabulary = set.tokenizer->size();
  for (auto& s : m.shards) {
    set.training.push_back({.path = directory + "/" + s.file,
                            .tokens = s.tokens,
                            .width = m.width,
                            .crc32c = s.crc32c});
    check_size(set.training.back(), "its manifest");
  }
  return set;
}

/// Throws Error 65 for tokens-00000.bin: a shard that `data` made, of u16 or of u32.
void check_no_shard(const std::string& path) {
  std::string name = fs::path(path).filename();
  bool is_shard =
      name.size() == 16 && name.starts_with("tokens-") && name.ends_with(".bin") &&
      std::ranges::all_of(name.substr(7, 5), [](char c) { return c >= '0' && c <= '9'; });
  check_input(!is_shard, Exit::data,
              "data: {} is one of the shards that `data` made; expected their directory, whose {} "
              "says how to read them\n  Where that is lost make them again: `data TEXT --out DIR`.",
              path, ShardManifest::name);
}

enum class Part { training, held_out, left_out };

/// Returns the part by a name's words, its runs of letters: `val`, `vals`, `valset`, `valdata`.
Part part_of(const std::string& name) {
  std::string words = " ";
  for (char c : name) {
    bool letter = std::isalpha(uint8_t(c)) || uint8_t(c) >= 0x80;
    words += letter ? char(std::tolower(uint8_t(c))) : ' ';
  }
  auto any = [&](std::initializer_list<const char*> known) {
    for (auto* word : known)
      for (auto* ending : {"", "s", "set", "sets", "data"})
        if (words.find(fmt::format(" {}{} ", word, ending)) != words.npos) return true;
    return false;
  };
  if (any({"test", "testing"})) return Part::left_out;
  return any({"val", "valid", "validation", "eval", "dev", "heldout", "held out", "holdout"})
             ? Part::held_out
             : Part::training;
}

std::string name_of(const std::string& path) { return printable(fs::path(path).filename()); }
std::string name_of(const TokenFile& file) { return name_of(file.path); }

/// Returns `trains on a.bin, b.bin; holds out val.bin; leaves out test.bin`.
std::string roles_of(const TokenSet& set) {
  std::vector<std::string> roles;
  auto add = [&](const char* role, const auto& files) {
    std::vector<std::string> names;
    for (auto& file : files) names.push_back(name_of(file));
    if (names.size() > 3)
      names = {fmt::format("{} files, {} to {}", names.size(), names.front(), names.back())};
    if (!names.empty()) roles.push_back(role + join(names, ", "));
  };
  add("trains on ", set.training);
  add("holds out ", set.held_out);
  add("leaves out ", set.left_out);
  return join(roles, "; ");
}

}  // namespace

bool holds_tokens(const std::string& path) {
  return disk().is_directory(path) || path.ends_with(".bin");
}

TokenSet find_tokens(const std::string& path) {
  if (!disk().is_directory(path)) {
    check_no_shard(path);
    return {.training = {plain_file(path)}};
  }
  auto names = disk().list(path);
  if (std::ranges::count(names, ShardManifest::name) > 0) return shards_of(path);
  TokenSet set;
  for (const std::string& name : names) {
    if (!name.ends_with(".bin")) continue;
    check_no_shard(path + "/" + name);
    Part part = part_of(name);
    if (part == Part::left_out) set.left_out.push_back(path + "/" + name);
    else
      (part == Part::held_out ? set.held_out : set.training)
          .push_back(plain_file(path + "/" + name));
  }
  set.roles = roles_of(set);
  check_input(!set.training.empty(), Exit::data,
              "data: {} is a directory without tokens to train on{}; expected a text file, or a "
              "directory that `data` has made, or one with files like train.bin and val.bin",
              path, set.roles.empty() ? "" : fmt::format(" ({})", set.roles));
  set.tokenizer = find_tokenizer(path);
  if (set.tokenizer) set.vocabulary = set.tokenizer->size();
  return set;
}

TokensPtr map_tokens(const std::vector<TokenFile>& files, int64_t vocabulary, int64_t& largest) {
  auto all = std::make_shared<JoinedTokens>();
  for (const TokenFile& f : files) {
    if (f.tokens == 0) continue;
    auto mapped = std::make_unique<MappedTokens>(f);
    largest = std::max(largest, mapped->verify(vocabulary));
    all->add(std::move(mapped));
  }
  return all;
}

std::string json_lines_notice(const std::string& path, std::string_view beginning) {
  std::string_view line = beginning.substr(0, beginning.find('\n'));
  line = line.substr(0, line.find_last_not_of(" \r") + 1);
  bool object = line.starts_with("{\"") || line.starts_with("{ \"");
  if (!object || !line.ends_with('}')) return {};
  return fmt::format(
      "{}: JSON Lines, taken as they are, with keys and braces. Write their texts to a "
      "file to train on these alone.\n",
      path);
}

}  // namespace triax::text
