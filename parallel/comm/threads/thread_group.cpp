#include "triax/parallel/comm/threads/thread_group.h"

#include <algorithm>
#include <utility>

#include "triax/core/profile.h"

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
  if (next_.load(std::memory_order_relaxed) >= pieces_) return false;
  ProfileRange range("move", Activity::communication);
  bool last = false;
  for (int64_t p; (p = next_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) {
    move(call, buffers_, p * piece_, std::min(elements_, (p + 1) * piece_));
    last = done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces_;
  }
  return last;
}

void RankStatus::fail(const std::string& why) {
  {
    std::lock_guard guard(mutex_);
    if (failed_) return;
    why_ = why;
    failed_ = true;
  }
  wake();
}

void RankStatus::end(int rank) {
  ended_[size_t(rank)] = true;
  wake();
}

std::string RankStatus::why() {
  std::lock_guard guard(mutex_);
  return why_;
}

void RankStatus::add(const std::shared_ptr<ThreadGroup>& group) {
  std::lock_guard guard(mutex_);
  std::erase_if(groups_, [](auto& g) { return g.expired(); });
  groups_.push_back(group);
}

void RankStatus::wake() {
  std::vector<std::weak_ptr<ThreadGroup>> groups;
  {
    std::lock_guard guard(mutex_);
    groups = groups_;
  }
  for (auto& weak : groups)
    if (auto group = weak.lock()) group->notify();
}

void ThreadGroup::notify() {
  { std::lock_guard guard(mutex); }  // so that nobody is between looking and sleeping
  changed.notify_all();
}

std::shared_ptr<Rendezvous> ThreadGroup::enter(int rank, int64_t number, const Transfer& t) {
  std::unique_lock guard(mutex);
  auto& entry = collectives[number];
  if (!entry) entry = std::make_shared<Rendezvous>(t.call, group.size());
  auto rendezvous = entry;
  if (!rendezvous->missing.empty() && rendezvous->first >= 0 && !rendezvous->call.matches(t.call)) {
    rendezvous->mismatch = std::make_shared<Error>(
        disagreement(group, number + 1, {rendezvous->first, rendezvous->call}, {rank, t.call}));
    changed.notify_all();
    throw Error(*rendezvous->mismatch);
  }
  rendezvous->arrive(rank, t);
  if (rendezvous->ready()) {
    collectives.erase(number);
    changed.notify_all();
  }
  return rendezvous;
}

std::shared_ptr<PostedMessage> ThreadGroup::post(int rank, const Transfer& t) {
  std::lock_guard guard(mutex);
  auto message = std::make_shared<PostedMessage>(PostedMessage{t.call, t, nullptr});
  messages[rank].push_back(message);
  match();
  return message;
}

void ThreadGroup::match() {
  for (bool moved = true; std::exchange(moved, false);)
    for (auto& [rank, queue] : messages) {
      if (queue.empty() || queue.front()->call.kind != Call::send) continue;
      auto send = queue.front();
      auto& other = messages[send->call.peer];
      if (other.empty() || other.front()->call.kind != Call::recv ||
          other.front()->call.peer != rank)
        continue;
      auto recv = other.front();
      auto rendezvous = std::make_shared<Rendezvous>(send->call, 2);
      if (send->call.dtype != recv->call.dtype || send->call.numel != recv->call.numel) {
        rendezvous->mismatch = std::make_shared<Error>(
            disagreement(group, 0, {rank, send->call}, {send->call.peer, recv->call}));
      } else {
        rendezvous->arrive(0, send->transfer);
        rendezvous->arrive(1, recv->transfer);
      }
      send->rendezvous = recv->rendezvous = rendezvous;
      queue.erase(queue.begin());
      other.erase(other.begin());
      changed.notify_all();
      moved = true;
    }
}

std::shared_ptr<ThreadGroup> ThreadGroup::child(const Group& g, int number, int color) {
  std::lock_guard guard(mutex);
  auto& entry = children[{number, color}];
  if (!entry.group) {
    entry = {std::make_shared<ThreadGroup>(g, status), g.size()};
    status->add(entry.group);
  }
  auto child = entry.group;
  if (--entry.left == 0) children.erase({number, color});
  return child;
}

}  // namespace triax::parallel
