#include "examples/text/tokenizer/words.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "core/check.h"
#include "core/io/files.h"
#include "examples/text/tokenizer/added_characters.h"
#include "examples/text/tokenizer/pattern.h"

namespace triax::text {
namespace {

static_assert(PCRE2_MAJOR * 100 + PCRE2_MINOR >= 1040, "PCRE2 10.40 or later is needed");

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::shared_ptr<pcre2_code> compiled(const std::string& pattern) {
  std::string expression = "(*LF)" + to_pcre2(pattern);
  int error = 0;
  size_t at = 0;
  std::shared_ptr<pcre2_code> code(
      pcre2_compile(units(expression), expression.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                    &error, &at, nullptr),
      pcre2_code_free);
  check_input(code != nullptr, Exit::data, "pattern `{}`: {}", printable(pattern),
              message_of(error));
  uint32_t empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  check_input(!empty, Exit::data, "pattern `{}` matches where there is nothing",
              printable(pattern));
  // Where a machine allows no such code, matching is slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return code;
}

/// Adds the characters that a PCRE2 expression names, in ranges; {1, 0} for a script, unless it got
/// no characters since Unicode 14, or, as Han, stand-ins of its own.
void add_named(const std::string& e, std::vector<std::pair<char32_t, char32_t>>& all) {
  for (size_t at = 0, before = e.npos, dash = 0; at < e.size();) {
    bool number = e.compare(at, 3, "\\x{") == 0;
    if (!number && (e[at] & 0x80) == 0) {
      dash = before != e.npos && e[at] == '-';
      if (!dash) before = e[at] == '[' ? e.npos : size_t(e[at]);
      at += e[at] == '\\' && (e[at + 1] & 0x80) == 0 ? 2 : 1;  // `\\x{` is no number
      continue;
    }
    auto c = number ? char32_t(std::strtoul(&e[at + 3], nullptr, 16)) : next_code_point(e, at, {});
    if (number) at = e.find('}', at) + 1;
    all.emplace_back(std::exchange(dash, 0) ? char32_t(before) : c, c);
    before = c;
  }
  constexpr std::string_view kept = "{sc:Han}{sc:Hangul}{sc:Greek}{sc:Hebrew}{sc:Thai}{sc:Tamil}";
  for (size_t at = 0; (at = e.find("{sc:", at)) != e.npos; ++at)
    if (kept.find(e.substr(at, e.find('}', at) + 1 - at)) == kept.npos) all.emplace_back(1, 0);
}

/// Returns the character of Unicode 14 in place of one that was added later; 0 for all others.
char32_t stand_in(char32_t c) {
  auto* end = std::end(added_characters);
  auto* row = std::ranges::lower_bound(added_characters, c, {}, &AddedCharacters::last);
  return row != end && row->first <= c ? row->like : 0;
}

bool joins(WordSplit::Match match, bool before, bool after) {
  using enum WordSplit::Match;
  return (match == contiguous && before == after) ||
         (match == merged_with_previous && !before && after) ||
         (match == merged_with_next && before && !after);
}

}  // namespace

Words::Words(std::vector<WordSplit> splits) : splits_(std::move(splits)) {
  for (auto& split : splits_) {
    codes_.push_back(compiled(split.pattern));
    add_named(to_pcre2(split.pattern), named_);
  }
}

WordReader::WordReader(const Words& words, std::string_view text, const Source& source)
    : words_(words),
      text_(text),
      source_(source),
      found_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free) {
  for (size_t at = 0; at < text.size();) {
    if ((text[at] & 0x80) == 0) {
      ++at;
      continue;
    }
    size_t begin = at;
    char32_t c = next_code_point(text, at, source), like = stand_in(c);
    if (like == 0) continue;
    bool common = like == 0x2e50 || like == 0x1cf50 || like == 0x1ed01;  // Script=Common, as c
    for (auto& named : words.named_) {
      auto inside = [&](char32_t x) { return named.first <= x && x <= named.second; };
      check_input(named.first > named.second ? common : inside(c) == inside(like), Exit::data,
                  "{}: byte {}: U+{:04X} came with Unicode 15 or later, and a pattern names such "
                  "characters; expected a text without it",
                  source.name, source.first + begin, uint32_t(c));
    }
    if (known_.empty()) known_ = text;
    std::string other;
    append_utf8(other, like);
    known_.replace(begin, other.size(), other);
  }
  if (!known_.empty()) text_ = known_;
}

WordReader::Found WordReader::find(size_t step, const Stretch& s, size_t from) const {
  auto* code = words_.codes_[step].get();
  auto subject = units(text_.substr(s.begin));
  uint32_t options = PCRE2_NO_UTF_CHECK | (s.goes_on ? PCRE2_PARTIAL_HARD : 0);
  auto match = [&](uint32_t how) {
    return pcre2_match(code, subject, s.end - s.begin, from - s.begin, how, found_.get(), nullptr);
  };
  int result = match(options);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(options | PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return {s.end, s.end};
  auto* place = pcre2_get_ovector_pointer(found_.get());
  if (result == PCRE2_ERROR_PARTIAL) return {s.begin + place[0], s.begin + place[0]};
  if (result < 0)
    fail(Exit::data, "{}: byte {}: pattern `{}`: {}", source_.name, source_.first + from,
         printable(words_.splits_[step].pattern), message_of(result));
  return {s.begin + place[0], s.begin + place[1]};
}

size_t WordReader::split(size_t step, const Stretch& s, const Take& take) {
  if (step == words_.codes_.size()) {
    if (!s.goes_on && s.begin < s.end) take(s.begin, s.end);
    return s.goes_on ? s.begin : s.end;
  }
  const WordSplit& how = words_.splits_[step];
  struct {
    size_t begin, end;
    bool match;
  } last{s.begin, s.begin, false};
  auto give = [&] {
    bool gone = last.match && how.match == WordSplit::Match::removed;
    if (last.begin < last.end && !gone) split(step + 1, {last.begin, last.end}, take);
  };
  auto add = [&](size_t begin, size_t end, bool match) {
    if (begin == end) return;
    match ^= how.invert;
    if (last.begin < last.end && joins(how.match, last.match, match)) {
      last.end = end, last.match = match;
      return;
    }
    give();
    last = {begin, end, match};
  };
  size_t at = s.begin;
  Found found{at, at};
  while (at < s.end && (found = find(step, s, at)).begin < found.end) {
    add(at, found.begin, false);
    add(found.begin, found.end, true);
    at = found.end;
  }
  if (!s.goes_on) {
    add(at, s.end, false);
    give();
    return s.end;
  }
  if (how.match != WordSplit::Match::isolated) return last.begin < last.end ? last.begin : at;
  give();
  // Between `at` and where a match may begin there is none, so the next steps can go on.
  return at < s.end ? split(step + 1, {at, found.begin, true}, take) : at;
}

}  // namespace triax::text
