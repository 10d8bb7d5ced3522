#include "examples/text/tokenizer/composed.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "examples/text/tokenizer/utf8.h"
#include "triax/core/check.h"

namespace triax::text {
namespace {

/// True for characters that combine with none before them: of Latin, Greek, Cyrillic, Hebrew and
/// Arabic letters, kana, CJK and Hangul syllables, which are most of all texts.
bool begins(char32_t c) {
  auto in = [c](char32_t first, char32_t last) { return first <= c && c <= last; };
  return c < 0x300 || in(0x370, 0x482) || in(0x48A, 0x52F) || in(0x5D0, 0x5EA) ||
         in(0x620, 0x64A) || in(0x3041, 0x3096) || in(0x30A1, 0x30FA) || in(0x3400, 0x9FFF) ||
         in(0xAC00, 0xD7A3);
}

std::string in_form_c(std::string_view text) {
  utf8proc_uint8_t* made = nullptr;
  auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                             utf8proc_ssize_t(text.size()), &made,
                             utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, &std::free);
  check(length >= 0, "composed: {}", utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(made), size_t(length)};
}

/// True for a text that is in form C because all of it is below U+0300.
bool is_simple(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c < 0xCC; });
}

}  // namespace

std::optional<Composed> composed(std::string_view text) {
  if (is_simple(text)) return {};
  constexpr size_t block = 4096;  // bytes; in the last ones there is a place wherever there can be
  Composed all;
  size_t begin = 0;
  auto add = [&](size_t end) {
    all.places.emplace_back(all.text.size(), begin);
    std::string_view part = text.substr(begin, end - begin);
    all.text += is_simple(part) ? std::string(part) : in_form_c(part);
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    size_t here = at;
    bool last = here + block > text.size();
    if (begins(next_code_point(text, at, {})) && here - begin >= (last ? 1 : block)) add(here);
  }
  add(text.size());
  return all.text == text ? std::nullopt : std::optional(std::move(all));
}

size_t last_place(std::string_view text) {
  for (size_t at = text.size(); at > 0;) {
    --at;
    bool inside = (text[at] & 0xC0) == 0x80;  // of a character
    if (size_t next = at; !inside && begins(next_code_point(text, next, {}))) return at;
  }
  return 0;
}

}  // namespace triax::text
