#include "parallel/comm/threads/rendezvous.h"

#include <algorithm>

namespace triax::parallel {

Rendezvous::Rendezvous(const Call& c, int ranks) : call(c), held_(size_t(ranks)) {
  buffers_.from.resize(size_t(ranks));
  buffers_.to.resize(size_t(ranks));
  for (int r = 0; r < ranks; ++r) missing.insert(r);
}

void Rendezvous::arrive(int rank, const Transfer& t) {
  auto r = size_t(rank);
  held_[r] = t;
  if (t.from.defined()) buffers_.from[r] = static_cast<const std::byte*>(t.from.data());
  if (t.to.defined()) buffers_.to[r] = static_cast<std::byte*>(t.to.data());
  missing.erase(rank);
  if (first < 0) first = rank;
  if (!missing.empty()) return;
  int ranks = int(held_.size());
  elements_ = parallel::elements(call, ranks);
  piece_ = std::max<int64_t>(1, piece_bytes / int64_t(size_of(call.dtype)));
  pieces_ = (elements_ + piece_ - 1) / piece_;
  ready_.store(true, std::memory_order_release);
}

bool Rendezvous::help() {
  bool last = false;
  for (int64_t p; (p = next_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) {
    move(call, buffers_, p * piece_, std::min(elements_, (p + 1) * piece_));
    last = done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces_;
  }
  return last;
}

void Rendezvous::leave(int rank) { held_[size_t(rank)] = {}; }

}  // namespace triax::parallel
