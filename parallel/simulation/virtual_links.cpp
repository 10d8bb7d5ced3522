#include "triax/parallel/simulation/virtual_links.h"

#include <algorithm>
#include <utility>

#include "triax/core/check.h"

namespace triax::parallel {

struct VirtualLinks::Thread {
  const Group* group = nullptr;
  std::condition_variable changed = {};
  bool chosen = false;
};

void VirtualLinks::go_on(std::vector<Thread*> threads) {
  ready_.insert(ready_.end(), threads.begin(), threads.end());
  for (; free_ > 0 && !ready_.empty(); --free_) {
    ready_.back()->chosen = true;
    ready_.back()->changed.notify_one();
    ready_.pop_back();
  }
}

void VirtualLinks::take_turn() {
  std::unique_lock lock(mutex_);
  --elsewhere_;
  Thread me;
  go_on({&me});
  me.changed.wait(lock, [&] { return me.chosen; });
}

void VirtualLinks::pause() {
  std::lock_guard lock(mutex_);
  ++elsewhere_, ++free_;
  go_on({});
}

void VirtualLinks::leave(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  ++free_;
  if (error) end_all(std::move(error));
  go_on({});
  check_progress();
}

std::shared_ptr<VirtualLinks::Transfer> VirtualLinks::post(const Wire& wire, int64_t number,
                                                           const Called& mine, const Group& group,
                                                           const Posted& posted) {
  std::lock_guard lock(mutex_);
  State& state = wires_[wire];
  auto& entry = state.open[number];
  if (!entry)
    entry = std::make_shared<Transfer>(Transfer{mine, mine.call.is_message() ? 2 : group.size()});
  auto t = entry;
  if (wire.from < 0 && !t->first.call.matches(mine.call))
    throw disagreement(group, number + 1, t->first, mine);
  t->begin = std::max({t->begin, posted.at, state.free});
  t->takes = std::max(t->takes, posted.takes);
  if (--t->missing > 0) return t;
  t->end = posted.moves_alone ? state.free = t->begin + t->takes : t->begin;
  state.open.erase(number);
  go_on(std::exchange(t->waiting, {}));
  return t;
}

void VirtualLinks::wait(Transfer& transfer, const Group& group) {
  std::unique_lock lock(mutex_);
  if (transfer.missing > 0 && !error_) {
    Thread me{&group};
    transfer.waiting.push_back(&me);
    ++free_;
    go_on({});
    check_progress();
    me.changed.wait(lock, [&] { return me.chosen; });
  }
  if (error_) std::rethrow_exception(error_);
}

void VirtualLinks::end_all(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
  for (auto& [wire, state] : wires_)
    for (auto& [number, t] : state.open) go_on(std::exchange(t->waiting, {}));
}

void VirtualLinks::check_progress() {
  if (elsewhere_ > 0 || free_ < at_once_ || error_) return;
  std::vector<std::string> waits;
  for (auto& [wire, state] : wires_)
    for (auto& [number, t] : state.open)
      for (Thread* thread : t->waiting)
        if (const Group& g = *thread->group; waits.size() < 4)
          waits.push_back(fmt::format("\n  rank {}: {}, group {}", g.members[size_t(g.rank)],
                                      located(t->first.call), g.str()));
  if (!waits.empty())
    end_all(std::make_exception_ptr(
        Error(Exit::mismatch, "all ranks wait for each other:" + join(waits, ""))));
}

}  // namespace triax::parallel
