#include "examples/text/tokenizer/utf8.h"

#include <algorithm>

#include "triax/core/check.h"

namespace triax::text {
namespace {

constexpr char32_t replacement = 0xFFFD;

/// True if these bytes begin a character of more bytes.
bool is_incomplete(std::string_view bytes) {
  auto lead = static_cast<unsigned char>(bytes[0]);
  size_t length = lead > 0xF4 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
  return bytes.size() < length &&
         std::all_of(bytes.begin() + 1, bytes.end(), [](char c) { return (c & 0xC0) == 0x80; });
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& at, const Source& source) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  auto refuse = [&](size_t i, const char* why) {
    fail(Exit::data, "{}: byte {} is 0x{:02X}: {}; expected UTF-8", source.name, source.first + i,
         byte(i), why);
  };
  unsigned lead = byte(at);
  if (lead < 0x80) return text[at++];
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC0) refuse(at, "a continuation byte without a lead byte");
  if (lead < 0xC2) refuse(at, "the lead byte of an overlong form");
  if (lead > 0xF4) refuse(at, "no byte of UTF-8");
  char32_t value = lead & (0x7Fu >> length);
  for (size_t i = at + 1; i < at + length; ++i) {
    if (i >= text.size()) refuse(at, "the lead byte of a character that the text ends in");
    if ((byte(i) & 0xC0) != 0x80)
      refuse(i, "not the continuation byte that its lead byte asks for");
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  if (value < (length == 4 ? 0x10000u : length == 3 ? 0x800u : 0x80u)) {
    refuse(at, "the lead byte of an overlong form");
  }
  if (value >= 0xD800 && value <= 0xDFFF) refuse(at, "the lead byte of a surrogate");
  if (value > 0x10FFFF) refuse(at, "the lead byte of a value past U+10FFFF");
  at += length;
  return value;
}

void append_utf8(std::string& text, char32_t c) {
  auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  auto rest = [&](int shift) { put(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), rest(0);
  if (c < 0x10000) return put(0xE0 | c >> 12), rest(6), rest(0);
  put(0xF0 | c >> 18), rest(12), rest(6), rest(0);
}

std::string describe(char32_t c) {
  std::string shown;
  if (c == '\n') shown = "\\n";
  else if (c == '\t') shown = "\\t";
  else if (c == '\r') shown = "\\r";
  else if (c == '\'' || c == '\\') shown = {'\\', static_cast<char>(c)};
  else if (c < 0x20 || (c >= 0x7F && c < 0xA0)) shown = fmt::format("\\x{:02x}", unsigned(c));
  // Others may be invisible or turn the line around; their number says enough.
  else if (c > 0xFF) shown = fmt::format("\\u{{{:x}}}", unsigned(c));
  else append_utf8(shown, c);
  return fmt::format("'{}' U+{:04X}", shown, unsigned(c));
}

size_t character_size(char lead) {
  auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

size_t last_character_end(std::string_view text) {
  if (text.empty()) return 0;
  size_t last = text.size() - 1;
  while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
  return last + character_size(text[last]) > text.size() ? last : text.size();
}

std::string Utf8Stream::add(std::string_view bytes) {
  held_ += bytes;
  std::string complete;
  size_t at = 0;
  while (at < held_.size() && !is_incomplete(std::string_view(held_).substr(at))) {
    size_t begin = at;
    try {
      next_code_point(held_, at, {"text"});
      complete.append(held_, begin, at - begin);
    } catch (const Error&) {
      append_utf8(complete, replacement);
      at = begin + 1;
    }
  }
  held_.erase(0, at);
  return complete;
}

std::string Utf8Stream::end() {
  std::string rest;
  if (!held_.empty()) append_utf8(rest, replacement);
  held_.clear();
  return rest;
}

}  // namespace triax::text
