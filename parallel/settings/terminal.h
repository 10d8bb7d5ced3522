#pragma once
#include <chrono>
#include <limits>
#include <string>
#include <string_view>

namespace triax::parallel {

/// Columns of the terminal that `descriptor` writes to: $COLUMNS, else what the terminal reports,
/// else `otherwise`.
int terminal_columns(int descriptor = 1, int otherwise = 80);

/// Text in lines of at most `columns` columns, broken at spaces and line breaks, not at tabs, which
/// become spaces; a longer word is cut. The first line continues one on which `indent` columns are
/// taken, the others are indented.
std::string wrapped(std::string_view text, int columns, int indent = 0);

/// Whole lines of text, those of more than `columns` columns broken at spaces; what follows is
/// indented by two columns more. Other lines, and words of any length, stay as they are. By
/// default for stdout; where that is no terminal, lines stay whole, for programs that read them.
std::string folded(std::string_view text,
                   int columns = terminal_columns(1, std::numeric_limits<int>::max()));

/// Says on stderr how far a long search is: a line every two seconds at most.
class SearchProgress {
 public:
  /// Would say() print now?
  bool due() const { return Clock::now() >= next_; }
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds between{2};
  Clock::time_point next_ = Clock::now() + between;
};

/// A word as a POSIX shell reads it back: in single quotes if it has characters that mean
/// something.
std::string shell_word(const std::string& word);

}  // namespace triax::parallel
