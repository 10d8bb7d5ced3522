#include "examples/text/foreign_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "examples/text/tokenizer/utf8.h"
#include "parallel/settings/setting.h"

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

}  // namespace

std::optional<MegatronIndex> megatron_index(const std::string& path) {
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
  return MegatronIndex{width, first / width + tokens};
}

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
