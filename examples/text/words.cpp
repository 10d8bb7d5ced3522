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
};

/// Bytes of the contraction that `text` begins with, 0 if it begins with none.
size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  char c = text[1], d = text.size() > 2 ? text[2] : '\0';
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
  return ((c == 'r' || c == 'v') && d == 'e') || (c == 'l' && d == 'l') ? 3 : 0;
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && continues(text[at]));
  return at;
}

/// Does a word end between characters of these classes, whatever stands around them? Only white
/// space belongs to what follows, and an apostrophe may belong to the letters behind it.
bool ends_between(CharacterClass before, CharacterClass after) {
  if (before == space || before == after) return false;
  return before != other || after != letter;
}

}  // namespace

CharacterClass class_of(char32_t c) { return find_class(c); }

size_t word_end(std::string_view text, size_t at, const Source& source) {
  if (size_t bytes = contraction(text.substr(at))) return at + bytes;
  Reader reader{text, source};
  size_t end = at;
  if (auto kind = reader.next(end); kind != space) return reader.end_of_run(kind, end);
  if (text[at] == ' ' && end < text.size()) {
    size_t behind = end;
    if (auto kind = reader.next(behind); kind != space) return reader.end_of_run(kind, behind);
  }
  // Of a run of white space the last character is left to what follows, unless it is the only one.
  for (size_t last = at, behind = end; end < text.size(); last = end, end = behind)
    if (reader.next(behind) != space) return last > at ? last : end;
  return end;
}

size_t last_character_end(std::string_view text) {
  if (text.empty()) return 0;
  size_t last = character_before(text, text.size());
  auto lead = static_cast<unsigned char>(text[last]);
  size_t bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return last + bytes > text.size() ? last : text.size();
}

size_t last_word_end(std::string_view text, size_t end, const Source& source) {
  text = text.substr(0, last_character_end(text));
  Reader reader{text, source};
  size_t right = std::min(end, text.size());
  if (right > 0 && (right == text.size() || continues(text[right])))
    right = character_before(text, right);
  for (size_t left; right > 0; right = left) {
    left = character_before(text, right);
    if (ends_between(reader.at(left), reader.at(right))) return right;
  }
  return 0;
}

}  // namespace triax::text
