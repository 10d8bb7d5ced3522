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

#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/comm/wrapper_comm.h"

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
class LinkComm final : public parallel::WrapperComm {
 public:
  LinkComm(std::unique_ptr<parallel::Communicator> inner, std::shared_ptr<Wires> wires)
      : WrapperComm(std::move(inner)), wires_(std::move(wires)) {}
  const char* transport() const override { return "a modelled link"; }

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
    void abandon(std::exception_ptr error) noexcept override { fault->note(error); }

    parallel::Work work;
    std::shared_ptr<Wires> wires;
    std::shared_ptr<Wires::Passage> passage;
    std::shared_ptr<parallel::Fault> fault;
  };

  parallel::Work start(parallel::Transfer t) override {
    Call::Kind kind = t.call.kind;
    int peer = t.call.peer;
    double bytes = ledger().total().bytes, sent = bytes - std::exchange(sent_, bytes);
    parallel::Work work = start_inner(std::move(t));
    if (kind == Call::barrier || kind == Call::split) return work;
    Wires::Wire wire{-1, -1};
    if (kind == Call::send) wire = {rank(), peer};
    if (kind == Call::recv) wire = {peer, rank()};
    bool collective = wire.first < 0;
    auto passage = wires_->post(wire, posted_[wire]++, collective ? size() : 2, sent);
    return parallel::Work(std::make_shared<Operation>(std::move(work), wires_, passage, fault()));
  }

  std::unique_ptr<Communicator> start_split(parallel::Group g, int number, int color) override {
    return std::make_unique<LinkComm>(split_inner(std::move(g), number, color),
                                      wires_->child(number, color));
  }

  std::shared_ptr<Wires> wires_;
  std::map<Wires::Wire, int64_t> posted_;
  double sent_ = 0;  // until the last call
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
