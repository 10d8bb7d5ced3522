#include "triax/parallel/train/model/feed.h"

#include <algorithm>
#include <cmath>

#include "triax/core/check.h"
#include "triax/core/profile.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {
namespace {

nn::Batch checked(nn::Batch b, int64_t samples) {
  auto right = [&](const Tensor& x) {
    return x.defined() && x.device() == cpu && x.rank() >= 1 && x.size(0) == samples;
  };
  std::string extra;
  for (auto& x : b.extra) extra += fmt::format(", extra {}", x);
  check_input(
      right(b.input) && right(b.target) && std::ranges::all_of(b.extra, right), Exit::data,
      "a batch of {} has input {} and target {}{}; expected dim 0 of each to count them, on "
      "the CPU",
      samples, b.input, b.target, extra);
  return b;
}

double weight_of(const nn::Samples& samples, int64_t index) try {
  double weight = samples.weight(index);
  check_input(weight >= 0 && std::isfinite(weight), Exit::data,
              "it is {}; expected a finite number of targets, 0 or more", weight);
  return weight;
} catch (...) {
  rethrow_from(fmt::format("samples: weight of sample {}", index));
}

}  // namespace

nn::Batch batch_of(const nn::Samples& samples, const std::vector<int64_t>& indices, int64_t first,
                   const std::string& of) {
  constexpr size_t shown = 8;
  try {
    bool training = first != nn::evaluation;
    nn::Batch batch = training ? samples.augmented(indices, first) : samples.batch(indices);
    batch.first = first;
    return checked(std::move(batch), std::ssize(indices));
  } catch (...) {
    std::span begin(indices.data(), std::min(shown, indices.size()));
    rethrow_from(fmt::format("samples: batch of {}, indices {}{}", of, join(begin, ", "),
                             indices.size() > shown ? ", .." : ""));
  }
}

Feed::Feed(std::shared_ptr<const nn::Samples> samples, uint64_t seed, const Place& place)
    : samples_(std::move(samples)), order_(samples_->count(), seed), place_(place) {}

nn::Batch Feed::at(int64_t step, int64_t micro) const {
  int64_t position = consumed(step - 1) + offset(micro);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < place_.micro_batch; ++i) indices.push_back(order_.at(position + i));
  return batch_of(*samples_, indices, position, fmt::format("step {}", step));
}

double Feed::weight(int64_t step) const {
  double sum = 0;
  for (int64_t i = 0; i < place_.global_batch; ++i)
    sum += weight_of(*samples_, order_.at(consumed(step - 1) + i));
  check_input(sum > 0, Exit::data,
              "samples: no target of step {} counts: its {} samples have weight 0\n"
              "  Leave samples without targets out of the data, or raise --global-batch.",
              step, place_.global_batch);
  return sum;
}

nn::Batch Feed::in_order(int64_t micro) const {
  std::vector<int64_t> indices;
  for (int64_t i = offset(micro); i < offset(micro) + place_.micro_batch; ++i)
    indices.push_back(i < samples_->count() ? i : -1);
  return batch_of(*samples_, indices, nn::evaluation, "validation");
}

int64_t Feed::micros_in_order() const {
  int64_t each = place_.micro_batch * place_.replicas;
  return (samples_->count() + each - 1) / each;
}

double Feed::weight_in_order() const {
  double sum = 0;
  for (int64_t i = 0; i < samples_->count(); ++i) sum += weight_of(*samples_, i);
  check_input(sum > 0, Exit::data,
              "samples: no held-out target counts: all samples have weight 0\n"
              "  Hold out others, or train without validation.");
  return sum;
}

Loader::Loader(const Feed& feed, int workers) : feed_(feed), counter_(memory::counter()) {
  for (int i = 0; i < workers; ++i)
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

/// Tells all workers to stop before it waits for the first: none begins another batch.
Loader::~Loader() {
  for (auto& w : workers_) w.request_stop();
}

nn::Batch Loader::at(int64_t step, int64_t micro) {
  ProfileRange range("load", Activity::data);
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

void Loader::work(const std::stop_token& stop) {
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
