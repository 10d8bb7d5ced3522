#include "triax/parallel/comm/work.h"

#include "triax/core/error.h"

namespace triax::parallel {

Work::Work(std::shared_ptr<Operation> operation)
    : operation_(std::move(operation)), unwinding_(std::uncaught_exceptions()) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  finish();
  operation_ = std::move(other.operation_);
  unwinding_ = other.unwinding_;
  return *this;
}

void Work::wait() {
  if (auto operation = std::exchange(operation_, nullptr)) operation->wait();
}

bool Work::done() {
  auto operation = std::exchange(operation_, nullptr);
  if (!operation || operation->advance()) return true;
  operation_ = std::move(operation);
  return false;
}

void Work::finish() noexcept {
  auto operation = std::exchange(operation_, nullptr);
  if (!operation) return;
  if (std::uncaught_exceptions() > unwinding_) {
    operation->abandon(std::make_exception_ptr(
        Error(Exit::peer_lost,
              "communicator: used after an error left one of its operations unfinished")));
    return;
  }
  try {
    operation->wait();
  } catch (...) {
    operation->abandon(std::current_exception());
  }
}

Engines& Engines::of_this_thread() {
  thread_local Engines engines;
  return engines;
}

void Engines::add(Engine& engine) { engines_.push_back(&engine); }
void Engines::remove(Engine& engine) { std::erase(engines_, &engine); }

void Engines::poll() {
  for (size_t i = 0; i < engines_.size(); ++i) engines_[i]->advance();
}

void poll() { Engines::of_this_thread().poll(); }

void Engines::settle() {
  for (size_t i = 0; i < engines_.size(); ++i) engines_[i]->settle();
}

}  // namespace triax::parallel
