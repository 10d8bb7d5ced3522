#include "examples/text/tokenizer/pattern.h"

#include <cctype>
#include <regex>

#include "core/check.h"
#include "core/io/files.h"

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

}  // namespace

std::string to_pcre2(std::string_view pattern) { return Translation(pattern).result(); }

}  // namespace triax::text
