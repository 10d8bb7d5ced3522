#include "triax/parallel/comm/launch/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>

#include "triax/parallel/comm/process.h"

namespace triax::parallel {
namespace {

// State that a signal handler may touch: lock-free atomics, and bytes that nobody is writing.
std::atomic<int> came = 0;
static_assert(std::atomic<int>::is_always_lock_free);

struct Farewell {
  char text[StopSignal::max_farewell + 1];
  size_t length;
};
/// Two texts: one is shown while the other is written. The handler ends the process, so it needs
/// the shown one for one write(2): less than a run takes from one farewell to the next but one.
Farewell farewells[2];
std::atomic<const Farewell*> farewell = nullptr;
static_assert(std::atomic<const Farewell*>::is_always_lock_free);
std::mutex writing;
std::atomic<bool> has_stopped = false;

/// Handles a signal. A second Ctrl-C ends the process; launchers may repeat the other signals.
void note(int signal) {
  if (came.exchange(signal) != SIGINT || signal != SIGINT) return;
  if (const Farewell* last = farewell.load()) [[maybe_unused]]
    auto written = ::write(STDERR_FILENO, last->text, last->length);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Installs a handler; under nohup a hang-up stays ignored.
void install(int signal, void (*handler)(int)) {
  struct sigaction now {};
  bool ignored = ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  if (signal != SIGHUP || !ignored) std::signal(signal, handler);
}

/// The wait for being killed: Open MPI and others kill a second after a SIGTERM.
constexpr auto until_killed = std::chrono::milliseconds(1200);

}  // namespace

StopSignal::StopSignal() : StopSignal(std::vector{SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {}

StopSignal::StopSignal(std::vector<int> signals) : signals_(std::move(signals)) {
  for (int s : signals_) install(s, &note);
}

StopSignal::~StopSignal() {
  // This rank has stopped, and will say so by its exit code. A launcher that sees another rank exit
  // first may send SIGTERM (srun --kill-on-bad-exit), which must not end this one.
  bool stopped = has_stopped.exchange(false) && std::uncaught_exceptions() == 0 && launched();
  for (int s : signals_) install(s, stopped ? SIG_IGN : SIG_DFL);
  bool told_to_end = came == SIGTERM && std::uncaught_exceptions() > 0 && launched();
  came = 0;
  farewell = nullptr;
  // A launcher sends SIGTERM to all ranks when one has failed and reported it. An error on this
  // rank is then a consequence, and no rank can tell it from an error of its own but by this: it is
  // killed before it could report it.
  if (told_to_end) std::this_thread::sleep_for(until_killed);
}

bool StopSignal::seen() { return came != 0; }
void StopSignal::set_stopped() { has_stopped = true; }

void StopSignal::set_farewell(const std::string& text) {
  std::lock_guard guard(writing);
  Farewell& next = farewell.load() == &farewells[0] ? farewells[1] : farewells[0];
  next.length = text.copy(next.text, max_farewell);
  farewell = &next;
}

}  // namespace triax::parallel
