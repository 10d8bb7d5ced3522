#include <algorithm>

#include "core/check.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "parallel/program/deepspeed/reader.h"
#include "parallel/settings/setting.h"

namespace triax::parallel {
namespace {

constexpr int deepest = 200;
constexpr char end_of_text = '\0';

/// Returns a text as Python opens it: lines end with '\n', and there is no byte order mark.
std::string plain_lines(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\r\n")) continue;
    plain += text[i] == '\r' ? '\n' : text[i];
  }
  return plain;
}

/// True for a number in JSON's grammar.
bool is_number(std::string_view text) {
  size_t at = text.starts_with('-');
  auto digits = [&] {
    size_t begin = at;
    at = std::min(text.find_first_not_of("0123456789", at), text.size());
    return at - begin;
  };
  auto skip = [&](std::string_view any) {
    bool there = at < text.size() && any.find(text[at]) != any.npos;
    at += there;
    return there;
  };
  bool zero = text.substr(at).starts_with('0');
  size_t whole = digits();
  if (whole == 0 || (zero && whole > 1) || (skip(".") && digits() == 0)) return false;
  if (skip("eE")) {
    skip("+-");
    if (digits() == 0) return false;
  }
  return at == text.size();
}

class HjsonReader {
 public:
  HjsonReader(std::string_view text, const std::string& source)
      : text_(plain_lines(text)), source_(source) {
    check_input(text_.find('\0') == text_.npos, Exit::data, "{} holds a zero byte", source_);
  }

  std::string json() {
    char first = next();
    if (first == '{' || first == '[') value();
    else object(end_of_text);
    if (next() != end_of_text) refuse(at_, "more follows what begins the file");
    return std::move(json_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  size_t find(std::string_view any, size_t from) const {
    return std::min(text_.find_first_of(any, from), text_.size());
  }
  /// Returns the text of [begin, end) without blanks at its end.
  std::string stripped(size_t begin, size_t end) const {
    std::string_view part = std::string_view(text_).substr(begin, end - begin);
    return std::string(part.substr(0, part.find_last_not_of(" \t") + 1));
  }
  int64_t line_of(size_t place) const {
    return 1 + std::count(text_.begin(), text_.begin() + ptrdiff_t(place), '\n');
  }
  [[noreturn]] void refuse(size_t place, const std::string& why) const {
    fail(Exit::data, "{}, line {}: {}", source_, line_of(place), why);
  }
  /// Appends a part of the result, on the line where it is in the text.
  void emit(std::string_view part) {
    if (!json_.empty()) {
      auto lines =
          std::count(text_.begin() + ptrdiff_t(emitted_), text_.begin() + ptrdiff_t(at_), '\n');
      json_.append(size_t(lines), '\n');
      emitted_ = at_;
    }
    json_ += part;
  }
  void emit_text(const std::string& content, size_t begin) {
    if (!is_plain_text(content)) refuse(begin, "a string is not UTF-8");
    emit(nn::quoted(content));
  }

  /// Returns the character behind blanks and comments.
  char next() {
    for (;;) {
      at_ = std::min(text_.find_first_not_of(" \t\n", at_), text_.size());
      if (rest().starts_with('#') || rest().starts_with("//")) {
        at_ = find("\n", at_);
      } else if (rest().starts_with("/*")) {
        size_t end = text_.find("*/", at_ + 2);
        if (end == text_.npos) refuse(at_, "a comment that does not end; expected */");
        at_ = end + 2;
      } else {
        return rest().empty() ? end_of_text : rest()[0];
      }
    }
  }

  /// Reads members up to `close`.
  void object(char close) {
    size_t begin = at_;
    emit("{");
    at_ += close != end_of_text;
    for (bool first = true; next() != close; first = false) {
      if (rest().empty())
        refuse(at_, fmt::format("the text ends in the braces of line {}; expected }}. A string "
                                "without quotes takes the rest of its line",
                                line_of(begin)));
      if (!first) emit(",");
      key();
      next();
      value();
      if (next() == ',') ++at_;
    }
    at_ += close != end_of_text;
    emit("}");
  }
  void key() {
    size_t begin = at_, end = at_;
    if (text_[at_] == '"' || text_[at_] == '\'') emit(in_quotes()), end = at_;
    else end = find("{}[],: \t\n", at_);
    size_t colon = text_.find_first_not_of(" \t\n", end);
    if (end == begin || colon == text_.npos || text_[colon] != ':')
      refuse(begin, fmt::format("`{}`; expected a key and a colon",
                                printable(text_.substr(
                                    begin, std::min<size_t>(find("\n", begin) - begin, 60)))));
    if (at_ == begin) emit_text(text_.substr(begin, end - begin), begin);
    emit(":");
    at_ = colon + 1;
  }
  void array() {
    emit("[");
    ++at_;
    for (bool first = true; next() != ']'; first = false) {
      if (!first) emit(",");
      value();
      if (next() == ',') ++at_;
    }
    ++at_;
    emit("]");
  }

  void value() {
    char first = rest().empty() ? end_of_text : rest()[0];
    if (++depth_ > deepest) refuse(at_, fmt::format("nested deeper than {}", deepest));
    if (first == '{') object('}');
    else if (first == '[') array();
    else if (rest().starts_with("'''")) lines();
    else if (first == '"' || first == '\'') emit(in_quotes());
    else without_quotes();
    --depth_;
  }
  /// Reads a value without quotes: null, true, false and numbers end where JSON lets them end. All
  /// else goes on to the end of its line, commas and braces included.
  void without_quotes() {
    size_t begin = at_, line = find("\n", at_);
    if (begin == line || std::string_view("{}[],:").find(text_[begin]) != std::string_view::npos)
      refuse(begin, begin == text_.size() ? "the text ends; expected a value"
                                          : fmt::format("`{}`; expected a value", text_[begin]));
    at_ = find(",}]#/\n", begin);
    bool path = rest().starts_with('/') && !rest().starts_with("//") && !rest().starts_with("/*");
    std::string word = stripped(begin, at_);
    if (!path && (word == "null" || word == "true" || word == "false" || is_number(word)))
      return emit(word);
    at_ = line;
    emit_text(stripped(begin, at_), begin);
  }
  /// Reads a string in quotes of either kind; returns it as JSON has it.
  std::string in_quotes() {
    size_t begin = at_;
    char quote = text_[at_++];
    std::string json = "\"";
    for (char c = 0; (c = at_ < text_.size() ? text_[at_] : end_of_text) != quote; ++at_) {
      if (uint8_t(c) < 0x20) refuse(begin, "a string without its closing quote on the same line");
      if (c != '\\') {
        json += c == '"' ? "\\\"" : std::string(1, c);
        continue;
      }
      char escaped = ++at_ < text_.size() ? text_[at_] : end_of_text;
      if (std::string_view("\"'\\/bfnrtu").find(escaped) == std::string_view::npos)
        refuse(begin, "a backslash before what it does not escape; expected \\\\ for itself");
      json += escaped == '\'' ? "'" : std::string{'\\', escaped};
    }
    ++at_;
    if (!is_plain_text(json)) refuse(begin, "a string is not UTF-8");
    return json + "\"";
  }
  /// Reads a string of several lines in ''', without the indentation of the first.
  void lines() {
    size_t begin = at_, indentation = begin - (text_.rfind('\n', begin) + 1);
    auto skip = [&](size_t at_most) {
      for (; at_most > 0 && (rest().starts_with(' ') || rest().starts_with('\t')); --at_most) ++at_;
    };
    at_ += 3;
    skip(text_.size());
    if (rest().starts_with('\n')) ++at_, skip(indentation);
    std::string content;
    while (!rest().starts_with("'''")) {
      if (rest().empty()) refuse(begin, "a string without its closing '''");
      content += text_[at_++];
      if (content.back() == '\n') skip(indentation);
    }
    at_ += 3;
    if (content.ends_with('\n')) content.pop_back();
    emit_text(content, begin);
  }

  std::string text_;
  const std::string& source_;
  size_t at_ = 0, emitted_ = 0;
  int depth_ = 0;
  std::string json_;
};

}  // namespace

std::string json_of_hjson(std::string_view text, const std::string& source) {
  return HjsonReader(text, source).json();
}

}  // namespace triax::parallel
