#include "parallel/comm/progress.h"

#include <algorithm>

namespace triax::parallel {

Engine::~Engine() = default;

Progress& Progress::of_this_thread() {
  thread_local Progress progress;
  return progress;
}

void Progress::add(Engine& engine) { engines_.push_back(&engine); }
void Progress::remove(Engine& engine) { std::erase(engines_, &engine); }

void Progress::poll() {
  for (size_t i = 0; i < engines_.size(); ++i) engines_[i]->advance();
}

void Progress::settle() {
  for (size_t i = 0; i < engines_.size(); ++i) engines_[i]->settle();
}

}  // namespace triax::parallel
