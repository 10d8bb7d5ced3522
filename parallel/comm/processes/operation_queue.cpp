#include "triax/parallel/comm/processes/operation_queue.h"

#include <utility>

#include "triax/parallel/comm/wait.h"

namespace triax::parallel {

QueuedOperation::QueuedOperation(std::shared_ptr<OperationQueue> queue, Transfer t)
    : queue_(std::move(queue)), transfer_(std::move(t)) {}

bool QueuedOperation::advance() {
  if (!finished_) Engines::of_this_thread().poll();
  if (error_) std::rethrow_exception(error_);
  if (auto error = queue_->fault().error; !finished_ && error) std::rethrow_exception(error);
  if (!finished_) return false;
  transfer_.from = transfer_.to = {};
  return true;
}

void QueuedOperation::wait() {
  Backoff backoff(queue_->crowded(), queue_->group().time_limit);
  while (!advance())
    if (!backoff.pause()) {
      Error error = no_progress(queue_->group(), call(), missing());
      queue_->fault().note(std::make_exception_ptr(error));
      throw error;
    }
}

void QueuedOperation::abandon(std::exception_ptr error) noexcept { queue_->fault().note(error); }

OperationQueue::~OperationQueue() {
  if (registered_) Engines::of_this_thread().remove(*this);
}

Work OperationQueue::add(std::shared_ptr<QueuedOperation> p) {
  if (p->call().is_message()) messages_.push_back(p);
  else collectives_.push_back(p);
  if (!std::exchange(registered_, true)) Engines::of_this_thread().add(*this);
  advance();
  return Work(p);
}

bool OperationQueue::run(QueuedOperation& p) noexcept try {
  return p.finished_ = p.step();
} catch (...) {
  p.error_ = std::current_exception();
  return false;
}

void OperationQueue::advance() noexcept {
  if (fault_->error) return;
  try {
    for (auto& p : collectives_)
      if (!p->announced_ && !(p->announced_ = p->announce())) break;
  } catch (...) {
    return fault_->note(std::current_exception());
  }
  while (!collectives_.empty() && collectives_.front()->announced_) {
    auto p = collectives_.front();  // may be the last handle but one
    if (!run(*p)) {
      if (p->error_) fault_->note(p->error_);
      break;
    }
    collectives_.pop_front();
  }
  std::erase_if(messages_, [&](auto& p) {
    bool finished = run(*p);
    if (p->error_) fault_->note(p->error_);
    return finished;
  });
}

}  // namespace triax::parallel
