#include "examples/minigpt/stop_signal.h"

#include <csignal>

namespace triax::minigpt {
namespace {

volatile std::sig_atomic_t came = 0;
constexpr int signals[] = {SIGTERM, SIGINT, SIGUSR1};

}  // namespace

StopSignal::StopSignal() {
  for (int s : signals) std::signal(s, [](int) { came = 1; });
}
StopSignal::~StopSignal() {
  for (int s : signals) std::signal(s, SIG_DFL);
  came = 0;
}
bool StopSignal::seen() { return came != 0; }

}  // namespace triax::minigpt
