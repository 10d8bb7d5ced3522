#include "examples/text/lines.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "parallel/comm/together.h"

namespace triax::text {
namespace {

/// The time between messages of a first rank that waits: humans take longer than ranks may wait.
constexpr int look_every_ms = 5000;

// The first byte of each message of the first rank to the others.
constexpr char nothing_yet = '.', line_follows = ':', end_of_input = '!';

/// Appends available input. Returns false at its end.
bool read_some(std::string& to) {
  char bytes[4096];
  ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return true;
  check_input(n >= 0, Exit::io, "standard input: {}", std::strerror(errno));
  to.append(bytes, size_t(n));
  return n > 0;
}

}  // namespace

std::string Lines::look() {
  size_t end = read_.find('\n');
  if (end == read_.npos && !ended_) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, look_every_ms) > 0) ended_ = !read_some(read_);
    end = read_.find('\n');
  }
  if (end == read_.npos && !ended_) return {nothing_yet};
  if (end == read_.npos && read_.empty()) return {end_of_input};
  std::string line = line_follows + read_.substr(0, end);
  read_.erase(0, end == read_.npos ? end : end + 1);
  return line;
}

std::optional<std::string> Lines::next() {
  std::string told;
  do told = parallel::text_of_first(ranks_, [&] { return look(); });
  while (told[0] == nothing_yet);
  if (told[0] == end_of_input) return {};
  return told.substr(1);
}

std::string all_of_stdin(parallel::Communicator& ranks) {
  return parallel::text_of_first(ranks, [] {
    std::string all;
    while (read_some(all)) continue;
    return all;
  });
}

}  // namespace triax::text
