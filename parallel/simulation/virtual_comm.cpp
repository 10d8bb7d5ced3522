#include "triax/parallel/simulation/virtual_comm.h"

#include <cmath>
#include <utility>

#include "triax/core/check.h"
#include "triax/core/random.h"

namespace triax::parallel {

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
