#include "triax/parallel/settings/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace triax::parallel {

namespace {

bool begins_character(char c) { return (c & 0xC0) != 0x80; }  // of UTF-8

int columns_of(std::string_view text) { return int(std::ranges::count_if(text, begins_character)); }

// Returns the bytes of the first `columns` characters.
size_t bytes_within(std::string_view text, int columns) {
  size_t at = 0;
  while (at < text.size() && (columns > 0 || !begins_character(text[at])))
    columns -= begins_character(text[at++]);
  return at;
}

}  // namespace

int terminal_columns(int descriptor, int otherwise) {
  int columns = 0;
  if (const char* variable = std::getenv("COLUMNS")) {
    std::string_view text = variable;
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  winsize size{};
  if (columns <= 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0)
    columns = size.ws_col > 0 ? size.ws_col : 80;  // mpirun's terminals have no size
  return columns > 0 ? columns : otherwise;
}

int output_columns() { return terminal_columns(1, std::numeric_limits<int>::max()); }

std::string wrapped(std::string_view text, int columns, int indent) {
  std::string lines;
  int room = std::max(columns - indent, 1), used = 0;
  auto break_line = [&] {
    lines += '\n' + std::string(size_t(indent), ' ');
    used = 0;
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find_first_of(" \n", at), text.size());
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (used > 0 && used + 1 + columns_of(word) > room) break_line();
    else if (used > 0) lines += ' ', ++used;
    while (columns_of(word) > room) {
      size_t cut = bytes_within(word, room);
      lines += word.substr(0, cut);
      word.remove_prefix(cut);
      break_line();
    }
    lines += word;
    used += columns_of(word);
  }
  std::ranges::replace(lines, '\t', ' ');
  return lines;
}

std::string folded(std::string_view text, int columns) {
  std::string lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t indent = std::min(line.find_first_not_of(' '), line.size()) + 2;
    while (columns_of(line) > columns) {
      size_t cut = line.rfind(' ', bytes_within(line, columns));
      if (cut == line.npos || cut < indent) cut = line.find(' ', indent);
      if (cut == line.npos) break;
      lines += line.substr(0, line.find_last_not_of(' ', cut) + 1) + '\n';
      line = std::string(indent, ' ') +
             line.substr(std::min(line.find_first_not_of(' ', cut), line.size()));
    }
    lines += line + '\n';
  }
  return lines;
}

void print_folded(std::string_view text) { fmt::print("{}", folded(text)); }

void SearchProgress::say(const std::string& line) {
  if (!due()) return;
  fmt::print(stderr, "{}\n", line);
  next_ = Clock::now() + between;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,=@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace triax::parallel
