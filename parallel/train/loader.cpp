#include "parallel/train/loader.h"

namespace triax::parallel {

Loader::Loader(const Feed& feed, int workers) : feed_(feed), counter_(memory::counter()) {
  for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

nn::Batch Loader::at(int64_t step, int64_t micro) {
  if (workers_.empty()) return feed_.at(step, micro);
  int64_t micros = feed_.place().micros(), number = step * micros + micro;
  std::unique_lock guard(lock_);
  batches_.erase(batches_.begin(), batches_.lower_bound(step * micros));
  if (!batches_.contains(number)) {  // the first, or a jump
    batches_.clear();
    next_ = end_ = number;
  }
  for (int64_t ahead = std::ssize(workers_) + 2; end_ <= number + ahead; ++end_) batches_[end_];
  wanted_.notify_all();
  made_.wait(guard, [&] { return batches_[number].done; });
  Made& made = batches_[number];
  if (made.error) std::rethrow_exception(made.error);
  return made.batch;
}

void Loader::work() {
  std::stop_token stop = stop_.get_token();
  memory::set_counter(counter_);
  std::unique_lock guard(lock_);
  while (true) {
    if (!wanted_.wait(guard, stop, [&] { return next_ < end_; }) || stop.stop_requested()) return;
    int64_t number = next_++, micros = feed_.place().micros();
    guard.unlock();
    Made made{.done = true};
    try {
      made.batch = feed_.at(number / micros, number % micros);
    } catch (...) {
      made.error = std::current_exception();
    }
    guard.lock();
    if (batches_.contains(number)) batches_[number] = std::move(made);
    made_.notify_all();
  }
}

}  // namespace triax::parallel
