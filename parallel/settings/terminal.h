#pragma once
#include <chrono>
#include <string>
#include <string_view>

namespace triax::parallel {

/// Returns the columns of the terminal that `descriptor` writes to: $COLUMNS, else what the
/// terminal reports, else `otherwise`.
int terminal_columns(int descriptor = 1, int otherwise = 80);
/// Returns those of stdout; where that is no terminal, more than any line has, for files and for
/// programs that read it.
int output_columns();

/// Returns text in lines of at most `columns` columns, broken at spaces and line breaks, not at
/// tabs, which become spaces; a longer word is cut. The first line continues one on which `indent`
/// columns are taken, the others are indented.
std::string wrapped(std::string_view text, int columns, int indent = 0);

/// Returns text whose lines of more than `columns` columns are broken at spaces; the continuations
/// are indented by two columns more. Other lines, and words of any length, stay as they are.
std::string folded(std::string_view text, int columns = output_columns());
/// Prints such a text on stdout.
void print_folded(std::string_view text);

/// Prints the progress of a long search on stderr: a line every two seconds at most.
class SearchProgress {
 public:
  /// True if say() would print now.
  bool due() const { return Clock::now() >= next_; }
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds between{2};
  Clock::time_point next_ = Clock::now() + between;
};

/// Returns a word as a POSIX shell reads it back: in single quotes if it has special characters.
std::string shell_word(const std::string& word);

}  // namespace triax::parallel
