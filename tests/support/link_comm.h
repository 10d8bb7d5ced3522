#pragma once
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/check.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::test {

using LinkClock = std::chrono::steady_clock;

struct LinkSpeed {
  double latency = 0;           ///< seconds
  double bandwidth = INFINITY;  ///< bytes per second
};

/// The wires between the ranks of one group: one for its collectives, one for each direction
/// between two ranks. What is on a wire moves by itself, no rank has to look after it. A transfer
/// begins when all its ranks have posted it and those before it on its wire are over.
class Wires {
 public:
  struct Passage {
    int posted = 0;
    double bytes = 0;
    std::optional<LinkClock::time_point> end = {};
  };
  using Wire = std::pair<int, int>;  // from, to

  explicit Wires(LinkSpeed speed) : speed_(speed) {}

  /// The `number`-th transfer on a wire, as one of its `parties` posts it.
  std::shared_ptr<Passage> post(Wire wire, int64_t number, int parties, double bytes) {
    std::lock_guard guard(mutex_);
    auto& open = open_[{wire, number}];
    if (!open) open = std::make_shared<Passage>();
    auto passage = open;
    passage->bytes = std::max(passage->bytes, bytes);
    if (++passage->posted == parties) {
      open_.erase({wire, number});
      std::chrono::duration<double> takes(speed_.latency + passage->bytes / speed_.bandwidth);
      auto& free = free_[wire];
      free =
          std::max(free, LinkClock::now()) + std::chrono::duration_cast<LinkClock::duration>(takes);
      passage->end = free;
      changed_.notify_all();
    }
    return passage;
  }
  /// Is it over?
  bool over(const Passage& p) {
    std::lock_guard guard(mutex_);
    return p.end && LinkClock::now() >= *p.end;
  }
  /// Sleeps until it is. All its parties have posted it, or are about to.
  void wait(const Passage& p) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return p.end.has_value(); });
    lock.unlock();
    std::this_thread::sleep_until(*p.end);
  }
  /// Of the part `color` that the `number`-th split makes.
  std::shared_ptr<Wires> child(int number, int color) {
    std::lock_guard guard(mutex_);
    auto& c = children_[{number, color}];
    if (!c) c = std::make_shared<Wires>(speed_);
    return c;
  }

 private:
  LinkSpeed speed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Wire, int64_t>, std::shared_ptr<Passage>> open_;
  std::map<Wire, LinkClock::time_point> free_;
  std::map<std::pair<int, int>, std::shared_ptr<Wires>> children_;
};

/// A communicator whose transfers, besides being made, take the time that a link of some speed
/// would: `latency` + logical bytes (`Ledger`) / `bandwidth`. Ranks are threads of one process.
/// Barriers and splits take none. What is split from it is as slow.
class LinkComm final : public parallel::Communicator {
 public:
  LinkComm(std::unique_ptr<parallel::Communicator> inner, std::shared_ptr<Wires> wires)
      : Communicator(inner->group()), inner_(std::move(inner)), wires_(std::move(wires)) {}
  const char* transport() const override { return "a modelled link"; }
  Device device() const override { return inner_->device(); }
  std::shared_ptr<Allocator> allocator() override { return inner_->allocator(); }

 private:
  using Call = parallel::Call;

  struct Operation final : parallel::Operation {
    Operation(parallel::Work w, std::shared_ptr<Wires> on, std::shared_ptr<Wires::Passage> p,
              std::shared_ptr<parallel::Fault> f)
        : work(std::move(w)), wires(std::move(on)), passage(std::move(p)), fault(std::move(f)) {}
    bool advance() override { return work.done() && wires->over(*passage); }
    void wait() override {
      work.wait();
      wires->wait(*passage);
    }
    void abandon(std::exception_ptr error) noexcept override { fault->error = error; }

    parallel::Work work;
    std::shared_ptr<Wires> wires;
    std::shared_ptr<Wires::Passage> passage;
    std::shared_ptr<parallel::Fault> fault;
  };

  parallel::Work start(parallel::Transfer t) override {
    double before = inner_->ledger().total().bytes;
    parallel::Work work = start_inner(t);
    if (t.call.kind == Call::barrier || t.call.kind == Call::split) return work;
    double bytes = inner_->ledger().total().bytes - before;
    Wires::Wire wire{-1, -1};
    if (t.call.kind == Call::send) wire = {rank(), t.call.peer};
    if (t.call.kind == Call::recv) wire = {t.call.peer, rank()};
    bool collective = wire.first < 0;
    auto passage = wires_->post(wire, posted_[wire]++, collective ? size() : 2, bytes);
    return parallel::Work(std::make_shared<Operation>(std::move(work), wires_, passage, fault()));
  }

  parallel::Work start_inner(const parallel::Transfer& t) {
    const Call& c = t.call;
    switch (c.kind) {
      case Call::all_reduce:
        return inner_->all_reduce(t.to, c.op, c.place);
      case Call::counts:
        return inner_->all_gather(t.from, t.to, c.place);
      case Call::all_to_all:
        check(!c.slices, "link: an all_to_all with counts; expected one of equal slices");
        return inner_->all_to_all(t.from, t.to, c.place);
      case Call::split:
        seats_ = t.to.to_host<int64_t>();
        [[fallthrough]];
      case Call::all_gather:
        return inner_->all_gather(t.from, t.to, c.place);
      case Call::reduce_scatter:
        return inner_->reduce_scatter(t.from, t.to, c.op, c.place);
      case Call::broadcast:
        return inner_->broadcast(t.from.defined() ? t.from : t.to, c.peer, c.place);
      case Call::reduce:
        return inner_->reduce(t.from, c.peer, c.op, c.place);
      case Call::gather:
        return inner_->gather(t.from, t.to, c.peer, c.place);
      case Call::scatter:
        return inner_->scatter(t.from, t.to, c.peer, c.place);
      case Call::send:
        return inner_->send(t.from, c.peer, c.place);
      case Call::recv:
        return inner_->recv(t.to, c.peer, c.place);
      case Call::barrier:
        inner_->barrier(c.place);
        return {};
    }
    fail(Exit::internal, "link: unknown call");
  }

  std::unique_ptr<Communicator> start_split(parallel::Group g, int number, int color) override {
    auto seat = [&](int rank) {
      if (size() == 1) return Seat{color, 0};
      return Seat{int(seats_[size_t(2 * rank)]), int(seats_[size_t(2 * rank) + 1])};
    };
    auto part = inner_->split(seat, g.name);
    return std::make_unique<LinkComm>(std::move(part), wires_->child(number, color));
  }

  std::unique_ptr<parallel::Communicator> inner_;
  std::shared_ptr<Wires> wires_;
  std::map<Wires::Wire, int64_t> posted_;
  std::vector<int64_t> seats_;  // color and key of every rank, in the split under way
};

/// `parallel::run_ranks`, with a link of this speed between the ranks.
inline void run_linked_ranks(int ranks, LinkSpeed speed,
                             const std::function<void(parallel::Communicator& world)>& rank) {
  auto wires = std::make_shared<Wires>(speed);
  parallel::run_thread_ranks(ranks, [&](std::unique_ptr<parallel::Communicator> inner) {
    LinkComm world(std::move(inner), wires);
    rank(world);
    world.check_usable();
  });
}

}  // namespace triax::test
