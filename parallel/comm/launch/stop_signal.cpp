#include "parallel/comm/launch/stop_signal.h"

#include <chrono>
#include <csignal>
#include <exception>
#include <thread>

#include "parallel/comm/launcher.h"

namespace triax::parallel {
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
  bool ended = came == SIGTERM && std::uncaught_exceptions() > 0 && launched();
  came = 0;
  // The launcher ends all ranks because another one has failed and said so: it kills a second after
  // a SIGTERM that was only noted here, and this rank has nothing to add.
  if (ended) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
}
bool StopSignal::seen() { return came != 0; }

}  // namespace triax::parallel
