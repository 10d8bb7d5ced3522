#include "triax/parallel/comm/threads/thread_comm.h"

#include <mutex>
#include <optional>
#include <thread>

#include "triax/core/check.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/threads/thread_group.h"
#include "triax/parallel/comm/wait.h"

namespace triax::parallel {
namespace {

/// An error whose reason lies with another rank.
class PeerFailed final : public Error {
 public:
  using Error::Error;
};

class ThreadOperation final : public Operation {
 public:
  struct Parts {
    std::shared_ptr<ThreadGroup> peers;
    int rank;  ///< in the group
    Call call;
    std::shared_ptr<Rendezvous> rendezvous;  ///< of a collective
    std::shared_ptr<PostedMessage> message;  ///< or of a send or recv
    std::shared_ptr<Fault> fault;
  };
  explicit ThreadOperation(Parts parts) : p_(std::move(parts)) {}

  bool advance() override {
    std::unique_lock lock(p_.peers->mutex);
    if (!everybody_came()) {
      throw_if_hopeless();
      return false;
    }
    lock.unlock();
    help();
    if (!p_.rendezvous->finished()) return false;
    leave();
    return true;
  }

  void wait() override {
    Engines::of_this_thread().settle();
    WaitClock waited;
    std::unique_lock lock(p_.peers->mutex);
    while (!everybody_came()) {
      throw_if_hopeless();
      if (waited.seconds() >= p_.peers->group.time_limit)
        throw no_progress(p_.peers->group, p_.call, missing());
      p_.peers->changed.wait_for(lock, WaitClock::between_looks);
    }
    lock.unlock();
    help();
    if (!p_.rendezvous->finished()) {  // others are still at their last pieces; they do not block
      lock.lock();
      p_.peers->changed.wait(lock, [&] { return p_.rendezvous->finished(); });
    }
    leave();
  }

  void abandon(std::exception_ptr error) noexcept override {
    p_.fault->note(error);
    p_.peers->status->fail(
        fmt::format("rank {} left {} unfinished", world_rank(), describe(p_.call)));
  }

 private:
  int world_rank() const { return p_.peers->group.members[size_t(p_.rank)]; }

  /// True if everybody is here. Called under the lock.
  bool everybody_came() {
    if (p_.message) p_.rendezvous = p_.message->rendezvous;
    if (p_.rendezvous && p_.rendezvous->mismatch) throw Error(*p_.rendezvous->mismatch);
    return p_.rendezvous && p_.rendezvous->ready();
  }

  std::vector<int> missing() const {
    if (p_.message) return {p_.call.peer};
    return {p_.rendezvous->missing.begin(), p_.rendezvous->missing.end()};
  }

  void throw_if_hopeless() const {
    RankStatus& status = *p_.peers->status;
    if (status.failed())
      throw PeerFailed(Exit::peer_lost, fmt::format("{}: {}", describe(p_.call), status.why()));
    for (int r : missing())
      if (int world = p_.peers->group.members[size_t(r)]; status.ended(world))
        throw Error(Exit::mismatch,
                    fmt::format("ranks disagree, group {}\n  rank {}: {}\n  rank {}: returned",
                                p_.peers->group.str(), world_rank(), located(p_.call), world));
  }

  void help() {
    if (p_.rendezvous->help()) p_.peers->notify();
  }

  void leave() {
    p_.rendezvous->leave(p_.message ? (p_.call.kind == Call::recv) : p_.rank);
    p_.message = nullptr;
  }

  Parts p_;
};

/// Holds the first error of ranks that are threads, and the first that only follows from another.
class FirstError {
 public:
  /// Runs `body`; returns why it failed, or nothing.
  std::optional<std::string> of(const std::function<void()>& body) try {
    body();
    return {};
  } catch (const PeerFailed& e) {
    note(consequence_);
    return e.what();
  } catch (const std::exception& e) {
    note(first_);
    return e.what();
  } catch (...) {
    note(first_);
    return "an exception of unknown type";
  }
  void rethrow() const {
    if (first_ || consequence_) std::rethrow_exception(first_ ? first_ : consequence_);
  }

 private:
  void note(std::exception_ptr& place) {
    std::lock_guard guard(mutex_);
    if (!place) place = std::current_exception();
  }
  std::mutex mutex_;
  std::exception_ptr first_, consequence_;
};

}  // namespace

ThreadComm::ThreadComm(std::shared_ptr<ThreadGroup> peers, Group group)
    : Communicator(std::move(group)), peers_(std::move(peers)) {}

Work ThreadComm::start(Transfer t) {
  ThreadOperation::Parts parts{peers_, rank(), t.call, nullptr, nullptr, fault()};
  if (t.call.is_message()) parts.message = peers_->post(rank(), t);
  else parts.rendezvous = peers_->enter(rank(), collectives_++, t);
  return Work(std::make_shared<ThreadOperation>(std::move(parts)));
}

std::unique_ptr<Communicator> ThreadComm::start_split(Group g, int number, int color) {
  auto peers = peers_->child(g, number, color);
  return std::make_unique<ThreadComm>(std::move(peers), std::move(g));
}

std::unique_ptr<Communicator> single_rank(ThreadOptions options) {
  Group all = Group::world(1, 0, options.time_limit);
  return std::make_unique<ThreadComm>(
      std::make_shared<ThreadGroup>(all, std::make_shared<RankStatus>(1)), all);
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& rank, ThreadOptions options) {
  run_thread_ranks(
      ranks,
      [&](std::unique_ptr<Communicator> world) {
        rank(*world);
        world->check_usable();
      },
      options);
}

void run_thread_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& rank,
                      ThreadOptions options) {
  check_threads();
  Group all = Group::world(ranks, 0, options.time_limit);
  auto status = std::make_shared<RankStatus>(ranks);
  auto peers = std::make_shared<ThreadGroup>(all, status);
  status->add(peers);

  FirstError error;
  auto run = [&](int r) {
    memory::set_counter(std::make_shared<memory::Counter>());
    set_rank_threads(core_share(ranks, ranks));
    auto why = error.of([&] {
      Group mine = all;
      mine.rank = r;
      rank(std::make_unique<ThreadComm>(peers, mine));
    });
    if (why) status->fail(fmt::format("rank {} failed: {}", r, *why));
    else status->end(r);
  };
  std::vector<std::thread> threads;
  threads.reserve(size_t(ranks));
  auto why = error.of([&] {
    try {
      for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
    } catch (const std::system_error& e) {
      throw Error(Exit::memory,
                  fmt::format("threads: rank {} of {}: {}", threads.size(), ranks, reason(e)));
    }
  });
  if (why) status->fail("a rank could not be started");
  for (auto& t : threads) t.join();
  error.rethrow();
}

}  // namespace triax::parallel
