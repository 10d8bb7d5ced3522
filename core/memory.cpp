#include "triax/core/memory.h"

namespace triax::memory {
namespace {

thread_local std::shared_ptr<Counter> this_counter = std::make_shared<Counter>();
thread_local Kind this_kind = activations;

void raise(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak;
  while (value > seen && !peak.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

const char* name(Kind kind) {
  constexpr const char* names[] = {"activations", "parameters", "gradients",
                                   "optimizer",   "buffers",    "offloaded"};
  return names[kind];
}

void Counter::add(Kind kind, int64_t bytes) {
  raise(peak_[kind], live_[kind] += bytes);
  if (kind == offloaded) return;
  raise(peak_total_, live_total_ += bytes);
}

void Counter::reset_peaks() {
  for (int k = 0; k < kinds; ++k) peak_[size_t(k)] = live_[size_t(k)].load();
  peak_total_ = live_total_.load();
}

const std::shared_ptr<Counter>& counter() { return this_counter; }
void set_counter(std::shared_ptr<Counter> c) { this_counter = std::move(c); }

OwnCounter::OwnCounter() : Scoped(this_counter, std::make_shared<Counter>()) {}
Scope::Scope(Kind kind) : Scoped(this_kind, kind) {}
Kind current_kind() { return this_kind; }

}  // namespace triax::memory
