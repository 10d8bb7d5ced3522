#include "parallel/comm/processes/lane.h"

#include "core/check.h"
#include "parallel/comm/backoff.h"
#include "parallel/comm/disagree.h"

namespace triax::parallel {

Pending::Pending(std::shared_ptr<Lane> lane, Transfer t)
    : lane_(std::move(lane)), transfer_(std::move(t)) {}

bool Pending::advance() {
  if (!finished_) Progress::of_this_thread().poll();
  if (error_) std::rethrow_exception(error_);
  if (!finished_ && lane_->error()) std::rethrow_exception(lane_->error());
  if (!finished_) return false;
  transfer_.from = transfer_.to = {};
  return true;
}

void Pending::wait() {
  Backoff backoff(lane_->crowded(), lane_->group().time_limit);
  while (!advance())
    if (!backoff.pause()) {
      Error error = no_progress(lane_->group(), call(), missing());
      lane_->spoil(std::make_exception_ptr(error));
      throw error;
    }
}

void Pending::abandon(std::exception_ptr error) noexcept { lane_->spoil(error); }

Lane::~Lane() {
  if (registered_) Progress::of_this_thread().remove(*this);
}

Work Lane::add_collective(std::shared_ptr<Pending> p) {
  collectives_.push_back(p);
  return started(p);
}

Work Lane::add_message(std::shared_ptr<Pending> p) {
  messages_.push_back(p);
  return started(p);
}

Work Lane::started(const std::shared_ptr<Pending>& p) {
  if (!std::exchange(registered_, true)) Progress::of_this_thread().add(*this);
  advance();
  return Work(p);
}

void Lane::spoil(std::exception_ptr error) noexcept {
  if (!fault_->error) fault_->error = error;
}

bool Lane::run(Pending& p) noexcept {
  try {
    return p.finished_ = p.step();
  } catch (...) {
    p.error_ = std::current_exception();
    return false;
  }
}

void Lane::advance() noexcept {
  if (fault_->error) return;
  try {
    for (auto& p : collectives_)
      if (!p->announced_ && !(p->announced_ = p->announce())) break;
  } catch (...) {
    return spoil(std::current_exception());
  }
  while (!collectives_.empty() && collectives_.front()->announced_) {
    auto p = collectives_.front();  // may be the last handle but one
    if (!run(*p)) {
      if (p->error_) spoil(p->error_);
      break;
    }
    collectives_.pop_front();
  }
  std::erase_if(messages_, [&](auto& p) {
    bool finished = run(*p);
    if (p->error_) spoil(p->error_);
    return finished;
  });
}

}  // namespace triax::parallel
