#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "triax/core/cuda/runtime/context.h"
#include "triax/core/gpus.h"

namespace triax::cuda {

namespace {

/// A clock of events on the calling thread's stream, read when they are many and at the end.
class EventClock final : public ProfileClock {
 public:
  explicit EventClock(int index) : index_(index) {}

  int64_t mark() override {
    constexpr size_t many = 4096;
    if (times_.empty() && pending_.empty()) set_origin();
    while (pending_.size() >= many && pending_.front().done()) read_first();
    Event event = spare_event();
    event.record(context(index_).stream());
    pending_.push_back(std::move(event));
    return int64_t(times_.size() + pending_.size()) - 1;
  }
  int64_t time(int64_t mark) override {
    for (; !pending_.empty(); read_first()) pending_.front().wait();
    return times_[size_t(mark)];
  }

 private:
  // An idle stream comes to an event between two looks at the host's clock. The quickest of several
  // tries counts: half of the time that it took is the most by which it can be off.
  void set_origin() {
    constexpr int tries = 16;
    int64_t quickest = std::numeric_limits<int64_t>::max();
    cudaStream_t stream = context(index_).stream();
    for (int i = 0; i < tries; ++i) {
      Event event(Event::Time::kept);
      event.record(stream);
      event.wait();
      int64_t begin = Profile::now();
      event.record(stream);
      event.wait();
      int64_t took = Profile::now() - begin;
      if (took >= quickest) continue;
      quickest = took;
      origin_ = std::move(event);
      origin_time_ = begin + took / 2;
    }
  }

  Event spare_event() {
    context(index_);  // makes the device current
    if (spare_.empty()) return Event(Event::Time::kept);
    Event event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }

  void read_first() {
    constexpr float far = 1000;  // milliseconds; a float of more says too little
    Event event = std::move(pending_.front());
    pending_.pop_front();
    float ms = event.since(origin_);
    times_.push_back(origin_time_ + std::llround(double(ms) * 1e6));
    if (ms > far) {
      origin_time_ = times_.back();
      std::swap(origin_, event);
    }
    spare_.push_back(std::move(event));
  }

  int index_;
  Event origin_{Event::Time::kept};
  int64_t origin_time_ = 0;
  std::deque<Event> pending_;   // behind times_
  std::vector<int64_t> times_;  // of the first marks
  std::vector<Event> spare_;
};

}  // namespace

}  // namespace triax::cuda

namespace triax {

std::unique_ptr<ProfileClock> gpu_clock(int index) {
  return std::make_unique<cuda::EventClock>(index);
}

}  // namespace triax
