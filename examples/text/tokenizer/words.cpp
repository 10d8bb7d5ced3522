#include "examples/text/tokenizer/words.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <regex>

#include "examples/text/tokenizer/added_characters.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::text {
namespace {

constexpr int deepest = 50;  // nesting of groups and classes

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Returns the ASCII characters that have a property: they are found faster when they are listed.
std::string ascii_of(std::string_view property) {
  if (property == "L") return "A-Za-z";
  if (property == "Lu") return "A-Z";
  if (property == "Ll") return "a-z";
  return property == "N" || property == "Nd" ? "0-9" : "";
}

class Translation {
 public:
  explicit Translation(std::string_view pattern) : from_(pattern) {}

  std::string result() {
    alternatives(0);
    require(at_ == from_.size(), "an unmatched `)`");
    return std::move(to_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(Exit::data, "pattern `{}` has {} at byte {}, which is not supported",
         printable(std::string(from_)), what, at_);
  }
  void require(bool fits, const std::string& what) const {
    if (!fits) refuse(what);
  }
  bool sees(std::string_view text) const { return from_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char next(const char* expected) {
    require(at_ < from_.size(), std::string("no ") + expected);
    return from_[at_++];
  }

  void alternatives(int depth) {
    require(depth < deepest, "too many groups in one another");
    while (at_ < from_.size() && !sees(")")) {
      if (sees("|")) {
        literal();
        continue;
      }
      size_t atom = to_.size();
      if (sees("(")) group(depth);
      else if (take("[")) to_ += set(depth);
      else if (take("\\")) to_ += escape(false);
      else if (sees("^")) refuse("`^`");
      else if (sees("*") || sees("+") || sees("?")) refuse("nothing to repeat");
      else literal();
      repetition(atom);
    }
  }

  /// Translates a character that stands for itself, `.`, `$` or `|`.
  void literal() {
    char c = from_[at_];
    if (ignores_case_) {
      // Other case may be of another length: `ss` matches U+00DF in Oniguruma alone.
      static const std::regex longer("ff|f[il]|s[st]", std::regex::icase);
      require((c & 0x80) == 0 && !std::regex_match(std::string(from_.substr(at_ - 1, 2)), longer),
              "a character whose other case has another length");
    }
    if (c == '{') to_ += '\\';
    to_ += character();
  }
  std::string character() {
    std::string bytes;
    do bytes += from_[at_++];
    while (at_ < from_.size() && (from_[at_] & 0xC0) == 0x80);
    return bytes;
  }

  void group(int depth) {
    bool ignored_case = ignores_case_;
    if (take("(?i:")) to_ += "(?i:", ignores_case_ = true;
    else if (take("(?:")) to_ += "(?:";
    else if (take("(?=")) to_ += "(?=";
    else if (take("(?!")) to_ += "(?!";
    else if (take("(?>")) to_ += "(?>";
    else {
      require(!sees("(?") && !sees("(*"), fmt::format("`{}`", from_.substr(at_, 3)));
      ++at_;
      to_ += "(?:";  // nothing refers to it
    }
    alternatives(depth + 1);
    require(take(")"), "a group without end");
    to_ += ')';
    ignores_case_ = ignored_case;
  }

  /// Returns the translation of `\x`, the backslash of which has been read.
  std::string escape(bool in_set) {
    size_t start = at_ - 1;
    char c = next("character behind `\\`");
    if (std::string_view("aefnrt").find(c) != std::string_view::npos) return {'\\', c};
    if (c == 'v') return "\\x0B";
    if (c == 's') return "\\p{White_Space}";  // \s of PCRE2 has U+180E too
    if (c == 'S') return "\\P{White_Space}";
    if (c == 'd' || c == 'D') return property("Nd", c == 'D', in_set);
    if (c == 'w' || c == 'W') return word_character(c == 'W', in_set);
    if (c == 'p' || c == 'P') return braced_property(c == 'P', in_set);
    if (c == 'x' || c == 'u') return code_point(c == 'u');
    if (is_letter(c) || is_digit(c)) {
      at_ = start;
      refuse(fmt::format("`\\{}`", c));
    }
    --at_;
    return "\\" + character();
  }

  std::string braced_property(bool negated, bool in_set) {
    require(take("{"), "a property without `{`");
    negated ^= take("^");
    std::string name;
    for (char c; (c = next("`}` of a property")) != '}';) {
      require(is_letter(c) || c == '_' || c == ' ', "a property with a strange name");
      name += c;
    }
    return property(name, negated, in_set);
  }
  std::string property(const std::string& name, bool negated, bool in_set) const {
    require(!ignores_case_, "a property where case is ignored");
    // For a script PCRE2 would take the extensions too.
    std::string inside = fmt::format("{{{}{}}}", name.size() > 2 ? "sc:" : "", name);
    if (negated) return "\\P" + inside;
    std::string set = "\\p" + inside + ascii_of(name);
    return in_set ? set : "[" + set + "]";
  }
  std::string word_character(bool negated, bool in_set) const {
    require(!ignores_case_ && !(negated && in_set), "`\\w` or `\\W` in such a place");
    std::string set = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
    if (in_set) return set;
    return (negated ? "[^" : "[") + set + "\\xB2\\xB3\\xB9\\xBC-\\xBE]";  // numbers of Latin-1
  }

  std::string code_point(bool four_digits) {
    std::string digits;
    bool braces = !four_digits && take("{");
    size_t most = braces ? 6 : four_digits ? 4 : 2;
    auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    while (digits.size() < most && at_ < from_.size() && is_hex(from_[at_])) digits += from_[at_++];
    bool whole = braces ? !digits.empty() && take("}") : digits.size() == most;
    // Two digits are a byte, which beyond ASCII is a part of a character.
    require(whole && (braces || four_digits || digits[0] < '8'), "a number of no character");
    require(!ignores_case_, "a character by its number where case is ignored");
    return "\\x{" + digits + "}";
  }

  /// Returns a set of characters, the `[` of which has been read.
  std::string set(int depth) {
    std::string open = take("^") ? "[^" : "[", inside = set_items(depth);
    if (!take("&&")) {
      require(take("]"), "a set without end");
      return open + inside + "]";
    }
    require(take("[^") && open == "[", "`&&` that is not followed by `[^`");
    std::string without = set_items(depth + 1);
    require(take("]]"), "`&&` in such a set");
    return "(?:(?![" + without + "])[" + inside + "])";
  }
  std::string set_items(int depth) {
    require(depth < deepest, "too many sets in one another");
    require(!sees("]"), "an empty set");
    std::string items;
    while (at_ < from_.size() && !sees("]") && !sees("&&")) {
      if (take("\\")) {
        items += escape(true);
      } else if (sees("[")) {
        require(!sees("[:") && !sees("[^") && !items.ends_with('-'), "such a set in a set");
        ++at_;
        items += set_items(depth + 1);
        require(take("]"), "a set without end");
        require(!sees("-"), "`-` behind a set");
      } else {
        require(!ignores_case_ || (from_[at_] & 0x80) == 0, "letters whose other case is unknown");
        items += from_[at_++];
      }
    }
    return items;
  }

  /// Translates the repetition of the atom that begins at `atom` of to_, if there is one.
  void repetition(size_t atom) {
    std::string repeats, suffix;
    bool exact = false;
    if (sees("*") || sees("+") || sees("?")) repeats = from_[at_++];
    else if (sees("{")) repeats = interval(exact);
    if (repeats.empty()) return;
    if (sees("?") || sees("+")) suffix = from_[at_++];
    require(
        at_ == from_.size() || std::string_view("*+?{").find(from_[at_]) == std::string_view::npos,
        "a repetition of a repetition");
    require(!exact || suffix != "?", "`?` behind an exact number");
    if (repeats[0] == '{' && suffix == "+") {  // in Ruby it repeats the repetition
      to_.insert(atom, "(?:");
      repeats += ")";
    }
    to_ += repeats + suffix;
  }
  /// Reads `{2}`, `{2,}`, `{2,3}` or `{,3}`; nothing if it is no interval.
  std::string interval(bool& exact) {
    static const std::regex form(R"(\{(\d{0,5})(,?)(\d{0,5})\})");
    std::cmatch found;
    bool is = std::regex_search(from_.data() + at_, from_.data() + from_.size(), found, form,
                                std::regex_constants::match_continuous);
    if (!is || found.length() < 3 || found.str() == "{,}") return {};
    at_ += size_t(found.length());
    exact = found[2].length() == 0;
    return (found[1].length() == 0 ? "{0" : "{" + found.str(1)) + found.str(2) + found.str(3) + "}";
  }

  std::string_view from_;
  std::string to_;
  size_t at_ = 0;
  bool ignores_case_ = false;
};

/// Returns the PCRE2 expression that matches what `pattern` matches in Oniguruma, the library that
/// `tokenizers` uses, in Unicode and with Ruby's syntax. Throws Error 65 for what the two libraries
/// read in different ways, and for what depends on the text before a match: a text could not be cut
/// into words piece by piece.
std::string to_pcre2(std::string_view pattern) { return Translation(pattern).result(); }

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
