#include "parallel/comm/failure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include "core/check.h"

namespace triax::parallel {
namespace {

/// What many ranks find wrong at once is reported once: rank 0 reports at once and ends the job,
/// which reaches the others before their turn. After a failure ranks have no other way to agree:
/// their communicators can no longer be used.
void wait_for_turn(int rank) {
  constexpr auto turn = std::chrono::milliseconds(400);  // mpirun ends a job in about 300 ms
  std::this_thread::sleep_for(turn * std::min(rank, 4));
}

}  // namespace

bool every_rank_may_speak() {
  const char* text = std::getenv("TRIAX_ONE_REPORT");
  return text && std::atoi(text) != 0;
}

void report_failure(const std::exception& e, int rank) {
  if (!every_rank_may_speak()) wait_for_turn(rank);
  std::fflush(stdout);
  std::fputs(failure_report(e).c_str(), stderr);
  std::fflush(stderr);
}

int exit_code(const std::exception& e) {
  if (auto* error = dynamic_cast<const Error*>(&e)) return int(error->code());
  return int(dynamic_cast<const std::bad_alloc*>(&e) ? Exit::memory : Exit::internal);
}

std::string failure_report(const std::exception& e) {
  constexpr int most_lines = 12;
  std::string text = fmt::format("triax: error {}: {}\n", exit_code(e), e.what());
  auto* error = dynamic_cast<const Error*>(&e);
  if (error && error->code() == Exit::internal && !error->place().empty())
    text += fmt::format("  at {}\n", error->place());
  size_t end = 0;
  for (int line = 0; line < most_lines && end < text.size(); ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

}  // namespace triax::parallel
