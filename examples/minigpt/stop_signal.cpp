#include "examples/minigpt/stop_signal.h"

#include <csignal>

namespace triax::minigpt {
namespace {

volatile std::sig_atomic_t came = 0;
constexpr int signals[] = {SIGTERM, SIGINT, SIGUSR1};

/// Who presses Ctrl-C twice does not want to wait. Launchers may send the others more than once.
void note(int signal) {
  if (came == SIGINT && signal == SIGINT) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  came = signal;
}

}  // namespace

StopSignal::StopSignal() {
  for (int s : signals) std::signal(s, &note);
}
StopSignal::~StopSignal() {
  for (int s : signals) std::signal(s, SIG_DFL);
  came = 0;
}
bool StopSignal::seen() { return came != 0; }

}  // namespace triax::minigpt
