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

#include "core/check.h"
#include "core/io/checksum.h"
#include "core/scoped.h"
#include "examples/text/foreign_files.h"

namespace triax::text {
namespace {

namespace fs = std::filesystem;
using Header = std::array<int32_t, 256>;  // llm.c's
/// The kinds of headers, of files with the tokens of GPT-2 (u16) and of Llama 3 (u32).
struct HeaderKind {
  int32_t magic, version;
  int width;  ///< bytes of a token
};
constexpr HeaderKind header_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

/// A file in memory, read-only.
class MappedFile : Immovable {
 public:
  explicit MappedFile(const std::string& path) : bytes_(disk().open(path).size()) {
    int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* at = descriptor < 0
                   ? MAP_FAILED
                   : ::mmap(nullptr, size_t(bytes_), PROT_READ, MAP_SHARED, descriptor, 0);
    int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    check_input(at != MAP_FAILED, Exit::io, "files: map {}: {}", path, std::strerror(error));
    data_ = static_cast<const char*>(at);
  }
  ~MappedFile() { ::munmap(const_cast<char*>(data_), size_t(bytes_)); }
  const char* data() const { return data_; }

 private:
  uint64_t bytes_;
  const char* data_ = nullptr;
};

/// The tokens of one file.
class MappedTokens {
 public:
  explicit MappedTokens(const TokenFile& file) : map_(file.path), file_(file) {}

  int64_t size() const { return file_.tokens; }
  void read(int64_t begin, std::span<int32_t> to) const {
    const char* from = map_.data() + file_.header + uint64_t(begin) * uint64_t(file_.width);
    if (file_.width == 2) widen<uint16_t>(from, to);
    else std::memcpy(to.data(), from, to.size_bytes());
  }
  /// Returns the largest token; throws Error 65 if the file is not what is known of it.
  int64_t verify(int64_t vocabulary) const {
    const char* bytes = map_.data() + file_.header;
    size_t count = size_t(file_.tokens) * size_t(file_.width);
    uint32_t crc = file_.crc32c ? crc32c(bytes, count) : 0;
    check_input(!file_.crc32c || crc == *file_.crc32c, Exit::data,
                "data: {} is damaged: crc32c {:08x}; expected {:08x}\n  Remove its directory, and "
                "make the shards again.",
                file_.path, crc, file_.crc32c.value_or(0));
    auto [place, largest] = file_.width == 2 ? largest_of<uint16_t>() : largest_of<uint32_t>();
    int64_t all = vocabulary > 0 ? vocabulary : most_tokens;
    const char* which = vocabulary > 0 ? "the" : "even a";
    bool fits = largest < all;
    check_input(fits, Exit::data,
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
    auto* first = reinterpret_cast<const T*>(map_.data() + file_.header);
    auto* found = std::max_element(first, first + file_.tokens);
    return {found - first, int64_t(*found)};
  }

  MappedFile map_;
  TokenFile file_;
};

/// The tokens of several files.
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
    if (auto index = megatron_index(path)) {
      TokenFile f{.path = path, .tokens = index->tokens, .width = index->width};
      check_size(f, "its index");
      return f;
    }
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

}  // namespace triax::text
