#include "triax/core/shared/team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "triax/core/scoped.h"

namespace triax {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto longest_spin = std::chrono::milliseconds(5);
/// The time without the core that shows a spinning thread that others want it; interrupts take
/// less.
constexpr auto preempted = std::chrono::milliseconds(1);
constexpr auto most_credit = std::chrono::milliseconds(4);
constexpr auto shortest_backoff = std::chrono::milliseconds(20);
constexpr auto longest_backoff = std::chrono::milliseconds(640);

thread_local int share_of_thread = -1;  // -1 outside of a team's work

/// Tells whether others want this thread's core, or a quota is used up, as the thread saw while it
/// spun. Then it blocks instead for a time, longer the more often it sees that.
class Oversubscription {
 public:
  bool at(Clock::time_point now) const { return now < until_; }
  void seen(Clock::time_point now) {
    length_ = now < until_ + length_ ? std::min<Clock::duration>(2 * length_, longest_backoff)
                                     : shortest_backoff;
    until_ = now + length_;
  }

 private:
  Clock::time_point until_{};
  Clock::duration length_ = shortest_backoff;
};
thread_local Oversubscription oversubscribed;

/// Returns the number of helpers of all teams of this process. While these and a thread that has
/// none are more than the cores, as with several ranks, nobody spins.
std::atomic<int>& helpers_in_all() {
  static std::atomic<int> helpers{0};
  return helpers;
}
bool cores_for_all() {
  static const int cores = usable_cores();
  return helpers_in_all() < cores;
}

/// Holds the function of one call of a team, and the first exception of its shares.
struct TeamCall {
  void run(int share) noexcept try {
    Scoped<int> here(share_of_thread, share);
    f.call(f.f, share);
  } catch (...) {
    if (!failed.test_and_set()) failure = std::current_exception();
  }

  ShareFunction f;
  std::atomic_flag failed{};
  std::exception_ptr failure{};
};

/// A thread that does one share of each call, if it comes in time.
class alignas(64) Helper : Immovable {
 public:
  explicit Helper(int share)
      : share_(share), thread_(std::make_unique<std::thread>([this] { serve(); })) {
    ++helpers_in_all();
  }
  ~Helper() {
    --helpers_in_all();
    become(ended, blocked);
    if (getpid() == process_) thread_->join();
    else static_cast<void>(thread_.release());  // fork() has not copied it
  }

  void post(TeamCall& call) {
    call_ = &call;
    become(posted, blocked);
  }
  /// Does the share here if the helper has not begun by then; false if it has.
  bool take_back(Clock::time_point then) {
    std::chrono::nanoseconds left = then - Clock::now();
    if (left > left.zero() && change(posted, wanted)) {
      timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
      futex(FUTEX_WAIT_PRIVATE, wanted, &limit);
    }
    if (!change(posted, idle) && !change(wanted, idle)) return false;
    call_->run(share_);
    return true;
  }
  /// Waits for the end of a share that the helper has begun.
  void wait() { leave(running, awaited); }

 private:
  enum State : int { idle, blocked, posted, wanted, running, awaited, ended };

  void serve() {
    while (state_ != ended) {
      leave(idle, blocked);
      if (!change(posted, running) && !change(wanted, awaited)) continue;  // taken back, or the end
      call_->run(share_);
      become(idle, awaited);
    }
  }

  bool change(State from, State to) { return state_.compare_exchange_strong(from, to); }
  /// Wakes the other thread if the state it has left is that of a blocked one.
  void become(State to, State of_blocked) {
    if (state_.exchange(to) == of_blocked) futex(FUTEX_WAKE_PRIVATE, 1);
  }
  /// Waits for another state than `from`: spins, then blocks, in state `waiting`.
  void leave(State from, State waiting) {
    if (state_ != from && state_ != waiting) return;
    auto begin = Clock::now(), looked = begin;
    auto had_the_core = [&] {
      auto before = std::exchange(looked, Clock::now());
      if (looked - before >= preempted) oversubscribed.seen(looked);
      return looked - before < preempted;
    };
    bool spin = cores_for_all() && !oversubscribed.at(begin);
    for (int looks = 1; spin && state_ == from; ++looks) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (looks % 32 == 0) spin = had_the_core() && looked - begin < longest_spin;
    }
    if (spin) had_the_core();  // as long as the other thread took
    change(from, waiting);
    while (state_ == waiting) futex(FUTEX_WAIT_PRIVATE, waiting);
  }
  void futex(int operation, int value, const timespec* limit = nullptr) {
    syscall(SYS_futex, &state_, operation, value, limit, nullptr, 0);
  }

  std::atomic<State> state_{idle};
  TeamCall* call_ = nullptr;
  int share_;
  pid_t process_ = getpid();
  std::unique_ptr<std::thread> thread_;  // last: it uses the above
};

thread_local std::vector<std::unique_ptr<Helper>> team;
/// The time that helpers have saved this thread lately, at most most_credit, or, negative, cost it.
thread_local Clock::duration balance{};
/// Until then this thread works alone, since others want the cores and helpers cost it time: at
/// most a tenth of the time is lost that way.
thread_local Clock::time_point alone_until{};
thread_local int threads_of_thread =
    std::max(1, threads_asked_for() == 0 ? usable_cores() : threads_asked_for());

/// Starts helpers for all shares but one, if it can; returns the shares that have a thread.
int grow(int shares) {
  try {
    while (int(team.size()) < shares - 1)
      team.push_back(std::make_unique<Helper>(int(team.size()) + 1));
  } catch (const std::system_error&) {  // fewer do, now and in later calls
    threads_of_thread = int(team.size()) + 1;
  }
  return std::min(shares, int(team.size()) + 1);
}

}  // namespace

int usable_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

int threads_asked_for() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (!text || !*text) return 0;
  char* end = nullptr;
  errno = 0;
  long threads = std::strtol(text, &end, 10);
  return errno == 0 && (*end == 0 || *end == ',' || *end == ' ') && threads > 0 &&
                 threads <= INT_MAX
             ? int(threads)
             : -1;
}

int team_threads() { return threads_of_thread; }
void set_threads(int threads) { threads_of_thread = threads, balance = {}, alone_until = {}; }
int threads_here() {
  return share_of_thread < 0 && Clock::now() >= alone_until ? team_threads() : 1;
}
int share_here() { return std::max(0, share_of_thread); }

void run_team(int shares, ShareFunction f) {
  if (shares == 1) return f.call(f.f, 0);
  TeamCall call{f};
  int helped = share_of_thread < 0 ? grow(shares) : 0;
  auto begin = Clock::now();  // starting threads is no loss of this call's
  for (int s = 1; s < helped; ++s) team[size_t(s - 1)]->post(call);
  auto all_posted = Clock::now();
  for (int s = 0; s < shares; s = std::max(s + 1, helped)) call.run(s);
  // While others want the cores a helper may come late: wait as long as its share would take here,
  // for which share 0 stands.
  auto now = Clock::now();
  auto own = now - all_posted, alone = own * shares;
  auto patience = helped > 1 && oversubscribed.at(now) ? own : own.zero();
  bool helps = false;
  for (int s = helped - 1; s > 0; --s) helps |= !team[size_t(s - 1)]->take_back(now + patience);
  for (int s = helped - 1; s > 0; --s) team[size_t(s - 1)]->wait();
  now = Clock::now();
  if (!helps) alone = now - all_posted - patience;
  balance = std::min<Clock::duration>(balance + alone - (now - begin), most_credit);
  if (balance < -preempted) alone_until = now + 10 * -std::exchange(balance, Clock::duration{});
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace triax
