#include "triax/parallel/simulation/virtual_comm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "triax/core/check.h"
#include "triax/core/random.h"

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

/// The wait for tensors on the CPU.
class VirtualComm::Moved final : public Operation {
 public:
  Moved(VirtualComm& comm, Work work) : comm_(comm), work_(std::move(work)) {}
  bool advance() override { return work_.done(); }
  void wait() override {
    if (work_.done()) return;
    comm_.p_.links.pause();
    work_.wait();
    comm_.p_.links.take_turn();
  }
  void abandon(std::exception_ptr error) noexcept override { comm_.fault()->note(error); }

 private:
  VirtualComm& comm_;
  Work work_;
};

/// The wait for a collective or a message that comes in. It is not done before someone waits:
/// whether it is over depends on how far the threads of peers are.
class VirtualComm::Arrival final : public Operation {
 public:
  Arrival(VirtualComm& comm, std::shared_ptr<VirtualLinks::Transfer> transfer)
      : comm_(comm), transfer_(std::move(transfer)) {}
  bool advance() override { return false; }
  void wait() override {
    comm_.p_.links.wait(*transfer_, comm_.group());
    VirtualClock& clock = comm_.p_.clock;
    clock.wait_until(transfer_->end, comm_.group().name);
    if (transfer_->end == transfer_->begin)
      clock.wait_until(clock.now() + transfer_->takes, comm_.group().name);
  }
  void abandon(std::exception_ptr error) noexcept override { comm_.fault()->note(error); }

 private:
  VirtualComm& comm_;
  std::shared_ptr<VirtualLinks::Transfer> transfer_;
};

VirtualLinks::Posted VirtualComm::posted(const Call& call, double bytes) const {
  auto& members = group().members;
  int me = members[size_t(rank())];
  double now = p_.clock.now();
  if (now >= Injected::of(me, p_.injected.deaths, INFINITY))
    fail(Exit::peer_lost, "rank {} ends at {:.3f} s, before {} of {}, as --dead-rank says", me, now,
         located(call), group().str());
  const Hardware& h = p_.clock.hardware();
  int64_t apart = members[1] - members[0];
  double takes = h.seconds({1, bytes}, size(), apart);
  if (call.is_message()) {
    apart = me / h.per_node == members[size_t(call.peer)] / h.per_node ? 1 : h.per_node;
    takes = h.message(bytes, apart);
  }
  return {now, takes * Injected::of(me, p_.injected.slow_links, 1), h.overlaps(size(), apart)};
}

Work VirtualComm::start(Transfer t) {
  const Call call = t.call;
  double all = ledger().total().bytes, bytes = all - std::exchange(sent_, all);
  bool moves = call.kind != Call::barrier && call.kind != Call::split;
  if (!moves || (t.from.defined() ? t.from : t.to).device() == cpu)
    return Work(std::make_shared<Moved>(*this, start_inner(std::move(t))));
  if (call.kind == Call::recv) bytes = double(t.to.bytes());
  VirtualLinks::Wire wire{id_};
  if (call.kind == Call::send) wire.from = rank(), wire.to = call.peer;
  if (call.kind == Call::recv) wire.from = call.peer, wire.to = rank();
  auto transfer = p_.links.post(wire, calls_[wire]++, {rank(), call}, group(), posted(call, bytes));
  if (call.kind == Call::send) return {};
  return Work(std::make_shared<Arrival>(*this, std::move(transfer)));
}

std::unique_ptr<Communicator> VirtualComm::start_split(Group group, int number, int color) {
  uint64_t id = random::key(id_, fmt::format("{} {}", number, color));
  return std::make_unique<VirtualComm>(split_inner(std::move(group), number, color), p_, id);
}

}  // namespace triax::parallel
