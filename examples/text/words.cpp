#include "examples/text/words.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "examples/text/unicode_classes.h"

namespace triax::text {
namespace {

using enum CharacterClass;

constexpr CharacterClass find_class(char32_t c) {
  auto* next = std::upper_bound(std::begin(class_changes), std::end(class_changes), c << 2 | 3);
  return CharacterClass(*(next - 1) & 3);
}

constexpr auto ascii = [] {
  std::array<CharacterClass, 128> classes{};
  for (char32_t c = 0; c < 128; ++c) classes[c] = find_class(c);
  return classes;
}();

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && continues(text[at]));
  return at;
}

bool breaks_line(char byte) { return byte == '\n' || byte == '\r'; }

struct Reader {
  std::string_view text;
  const Source& source;

  /// The class of the character at byte `at`, which moves behind it.
  CharacterClass next(size_t& at) const {
    auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 128) return ++at, ascii[byte];
    return find_class(next_code_point(text, at, source));
  }
  CharacterClass at(size_t place) const { return next(place); }
  size_t end_of_run(CharacterClass kind, size_t at) const {
    for (size_t next_at = at; at < text.size(); at = next_at)
      if (next(next_at) != kind) break;
    return at;
  }
  /// Of a run of white space the last character is left to what follows, unless it is the only one.
  size_t end_of_space(size_t at) const {
    size_t end = end_of_run(space, at), last = character_before(text, end);
    return end == text.size() || last == at ? end : last;
  }
};

/// Bytes of the contraction that `text` begins with, 0 if it begins with none.
size_t contraction(std::string_view text, Words words) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  auto letter = [&](size_t i) {
    char c = i < text.size() ? text[i] : '\0';
    return words == Words::llama3 && c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  };
  constexpr std::string_view long_s = "\u017F";  // in another case it is an s
  if (words == Words::llama3 && text.substr(1).starts_with(long_s)) return 1 + long_s.size();
  char c = letter(1), d = letter(2);
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
  return ((c == 'r' || c == 'v') && d == 'e') || (c == 'l' && d == 'l') ? 3 : 0;
}

size_t gpt2_word_end(const Reader& reader, size_t at) {
  const std::string_view text = reader.text;
  size_t end = at;
  if (auto kind = reader.next(end); kind != space) return reader.end_of_run(kind, end);
  if (text[at] == ' ' && end < text.size()) {
    size_t behind = end;
    if (auto kind = reader.next(behind); kind != space) return reader.end_of_run(kind, behind);
  }
  return reader.end_of_space(at);
}

/// The pattern's alternatives in their order.
size_t llama3_word_end(const Reader& reader, size_t at) {
  const std::string_view text = reader.text;
  auto is = [&](CharacterClass kind, size_t i) { return i < text.size() && reader.at(i) == kind; };
  size_t end = at;
  auto kind = reader.next(end);
  if (kind == letter || (kind != number && !breaks_line(text[at]) && is(letter, end)))
    return reader.end_of_run(letter, end);
  if (kind == number) {
    for (int more = 2; more > 0 && is(number, end); --more) reader.next(end);
    return end;
  }
  if (size_t mark = text[at] == ' ' ? end : at; is(other, mark)) {
    end = reader.end_of_run(other, mark);
    while (end < text.size() && breaks_line(text[end])) ++end;
    return end;
  }
  size_t run = reader.end_of_run(space, at);
  size_t line = text.substr(at, run - at).find_last_of("\r\n");
  return line == text.npos ? reader.end_of_space(at) : at + line + 1;
}

/// Does a word end between characters of these classes, whatever stands around them? Only white
/// space belongs to what follows, and an apostrophe may belong to the letters behind it.
bool ends_between(CharacterClass before, CharacterClass after) {
  if (before == space || before == after) return false;
  return before != other || after != letter;
}

}  // namespace

size_t word_end(std::string_view text, size_t at, const Source& source, Words words) {
  if (size_t bytes = contraction(text.substr(at), words)) return at + bytes;
  Reader reader{text, source};
  return words == Words::gpt2 ? gpt2_word_end(reader, at) : llama3_word_end(reader, at);
}

size_t last_character_end(std::string_view text) {
  if (text.empty()) return 0;
  size_t last = character_before(text, text.size());
  auto lead = static_cast<unsigned char>(text[last]);
  size_t bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return last + bytes > text.size() ? last : text.size();
}

size_t last_word_end(std::string_view text, size_t end, const Source& source, Words words) {
  text = text.substr(0, last_character_end(text));
  Reader reader{text, source};
  size_t right = std::min(end, text.size());
  if (right > 0 && (right == text.size() || continues(text[right])))
    right = character_before(text, right);
  for (size_t left; right > 0; right = left) {
    left = character_before(text, right);
    auto before = reader.at(left);
    bool takes_line_breaks = words == Words::llama3 && before == other;
    if (takes_line_breaks && breaks_line(text[right])) continue;
    if (ends_between(before, reader.at(right))) return right;
  }
  return 0;
}

}  // namespace triax::text
