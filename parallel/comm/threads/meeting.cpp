#include "parallel/comm/threads/meeting.h"

#include <algorithm>

#include "core/check.h"
#include "parallel/comm/disagree.h"

namespace triax::parallel {

Meeting::Meeting(const Call& c, int ranks) : call(c), held_(size_t(ranks)) {
  buffers_.from.resize(size_t(ranks));
  buffers_.to.resize(size_t(ranks));
  for (int r = 0; r < ranks; ++r) missing.insert(r);
}

void Meeting::arrive(int rank, const Transfer& t) {
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

bool Meeting::help() {
  bool last = false;
  for (int64_t p; (p = next_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) {
    move(call, buffers_, p * piece_, std::min(elements_, (p + 1) * piece_));
    last = done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces_;
  }
  return last;
}

void Meeting::leave(int rank) { held_[size_t(rank)] = {}; }

void Fate::fail(const std::string& why) {
  {
    std::lock_guard guard(mutex_);
    if (failed_) return;
    why_ = why;
    failed_ = true;
  }
  wake();
}

void Fate::end(int rank) {
  ended_[size_t(rank)] = true;
  wake();
}

std::string Fate::why() {
  std::lock_guard guard(mutex_);
  return why_;
}

void Fate::join(const std::shared_ptr<Hub>& hub) {
  std::lock_guard guard(mutex_);
  std::erase_if(hubs_, [](auto& h) { return h.expired(); });
  hubs_.push_back(hub);
}

void Fate::wake() {
  std::vector<std::weak_ptr<Hub>> hubs;
  {
    std::lock_guard guard(mutex_);
    hubs = hubs_;
  }
  for (auto& weak : hubs)
    if (auto hub = weak.lock()) hub->notify();
}

void Hub::notify() {
  { std::lock_guard guard(mutex); }  // so that nobody is between looking and sleeping
  changed.notify_all();
}

std::shared_ptr<Meeting> Hub::meet(int rank, int64_t number, const Transfer& t) {
  std::unique_lock guard(mutex);
  auto& entry = meetings[number];
  if (!entry) entry = std::make_shared<Meeting>(t.call, group.size());
  auto meeting = entry;
  if (!meeting->missing.empty() && meeting->first >= 0 && !meeting->call.matches(t.call)) {
    meeting->mismatch = std::make_shared<Error>(
        disagreement(group, number + 1, {meeting->first, meeting->call}, {rank, t.call}));
    changed.notify_all();
    throw Error(*meeting->mismatch);
  }
  meeting->arrive(rank, t);
  if (meeting->ready()) {
    meetings.erase(number);
    changed.notify_all();
  }
  return meeting;
}

std::shared_ptr<Message> Hub::post(int rank, const Transfer& t) {
  std::lock_guard guard(mutex);
  auto message = std::make_shared<Message>(Message{t.call, t, nullptr});
  messages[rank].push_back(message);
  match();
  return message;
}

void Hub::match() {
  for (bool moved = true; std::exchange(moved, false);)
    for (auto& [rank, queue] : messages) {
      if (queue.empty() || queue.front()->call.kind != Call::send) continue;
      auto send = queue.front();
      auto& other = messages[send->call.peer];
      if (other.empty() || other.front()->call.kind != Call::recv ||
          other.front()->call.peer != rank)
        continue;
      auto recv = other.front();
      auto meeting = std::make_shared<Meeting>(send->call, 2);
      if (send->call.dtype != recv->call.dtype || send->call.numel != recv->call.numel) {
        meeting->mismatch = std::make_shared<Error>(
            disagreement(group, 0, {rank, send->call}, {send->call.peer, recv->call}));
      } else {
        meeting->arrive(0, send->transfer);
        meeting->arrive(1, recv->transfer);
      }
      send->meeting = recv->meeting = meeting;
      queue.erase(queue.begin());
      other.erase(other.begin());
      changed.notify_all();
      moved = true;
    }
}

std::shared_ptr<Hub> Hub::child(const Group& g, int number, int color) {
  std::lock_guard guard(mutex);
  auto& entry = children[{number, color}];
  if (!entry.hub) {
    entry = {std::make_shared<Hub>(g, fate), g.size()};
    fate->join(entry.hub);
  }
  auto hub = entry.hub;
  if (--entry.left == 0) children.erase({number, color});
  return hub;
}

}  // namespace triax::parallel
