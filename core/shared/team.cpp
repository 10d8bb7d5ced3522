#include "core/shared/team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/scoped.h"

namespace triax {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto longest_spin = std::chrono::milliseconds(5);
/// The time without the core that shows a thread awake that others want it; interrupts take less.
constexpr auto taken = std::chrono::milliseconds(1);
constexpr auto most_credit = std::chrono::milliseconds(4);
constexpr auto shortest_calm = std::chrono::milliseconds(20);
constexpr auto longest_calm = std::chrono::milliseconds(640);

thread_local int share_of_thread = -1;  // -1 outside of a team's work

/// Whether others want this thread's core, or a quota is used up, as it saw while it waited awake.
/// Then it waits asleep for a time, longer the more often it sees that.
class Crowd {
 public:
  bool here(Clock::time_point now) const { return now < until_; }
  void see(Clock::time_point now) {
    length_ = now < until_ + length_ ? std::min<Clock::duration>(2 * length_, longest_calm)
                                     : shortest_calm;
    until_ = now + length_;
  }

 private:
  Clock::time_point until_{};
  Clock::duration length_ = shortest_calm;
};
thread_local Crowd crowd;

/// Holds the number of workers of all teams of this process. While these and a thread that has none
/// are more than the cores, as with several ranks, nobody waits awake.
std::atomic<int>& workers_in_all() {
  static std::atomic<int> workers{0};
  return workers;
}
bool cores_for_all() {
  static const int cores = usable_cores();
  return workers_in_all() < cores;
}

/// The work of one call and its first exception.
struct Work {
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
class alignas(64) Worker : Immovable {
 public:
  explicit Worker(int share) : share_(share), thread_([this] { serve(); }) { ++workers_in_all(); }
  ~Worker() {
    --workers_in_all();
    become(ended, asleep);
    if (getpid() == process_) thread_.join();
    else thread_.detach();  // fork() has not copied it
  }

  void post(Work& work) {
    work_ = &work;
    become(posted, asleep);
  }
  /// Does the share here if the worker has not begun by then; false if it has.
  bool take_back(Clock::time_point then) {
    std::chrono::nanoseconds left = then - Clock::now();
    if (left > left.zero() && change(posted, wanted)) {
      timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
      futex(FUTEX_WAIT_PRIVATE, wanted, &limit);
    }
    if (!change(posted, idle) && !change(wanted, idle)) return false;
    work_->run(share_);
    return true;
  }
  /// Waits for the end of a share that the worker has begun.
  void wait() { leave(running, awaited); }

 private:
  enum State : int { idle, asleep, posted, wanted, running, awaited, ended };

  void serve() {
    while (state_ != ended) {
      leave(idle, asleep);
      if (!change(posted, running) && !change(wanted, awaited)) continue;  // taken back, or the end
      work_->run(share_);
      become(idle, awaited);
    }
  }

  bool change(State from, State to) { return state_.compare_exchange_strong(from, to); }
  /// Wakes the other thread if the state it has left is that of a sleeper.
  void become(State to, State of_sleeper) {
    if (state_.exchange(to) == of_sleeper) futex(FUTEX_WAKE_PRIVATE, 1);
  }
  /// Waits for another state than `from`: awake, then asleep, in state `sleeping`.
  void leave(State from, State sleeping) {
    auto begin = Clock::now(), looked = begin;
    auto had_the_core = [&] {
      auto before = std::exchange(looked, Clock::now());
      if (looked - before >= taken) crowd.see(looked);
      return looked - before < taken;
    };
    bool awake = cores_for_all() && !crowd.here(begin);
    for (int looks = 1; awake && state_ == from; ++looks) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (looks % 32 == 0) awake = had_the_core() && looked - begin < longest_spin;
    }
    if (awake) had_the_core();  // as long as the other thread took
    change(from, sleeping);
    while (state_ == sleeping) futex(FUTEX_WAIT_PRIVATE, sleeping);
  }
  void futex(int operation, int value, const timespec* limit = nullptr) {
    syscall(SYS_futex, &state_, operation, value, limit, nullptr, 0);
  }

  std::atomic<State> state_{idle};
  Work* work_ = nullptr;
  int share_;
  pid_t process_ = getpid();
  std::thread thread_;  // last: it uses the above
};

/// Starts workers for all shares but one, if it can; returns the shares that have a thread.
int grow(std::vector<std::unique_ptr<Worker>>& workers, int shares) {
  try {
    while (int(workers.size()) < shares - 1)
      workers.push_back(std::make_unique<Worker>(int(workers.size()) + 1));
  } catch (const std::system_error&) {  // fewer do
  }
  return std::min(shares, int(workers.size()) + 1);
}

thread_local std::vector<std::unique_ptr<Worker>> team;
/// The time that workers have saved this thread lately, at most most_credit, or, negative, cost it.
thread_local Clock::duration balance{};
/// Until then this thread works alone, since others want the cores and workers cost it time: at
/// most a tenth of the time is lost that way.
thread_local Clock::time_point alone_until{};
thread_local int threads_of_thread = [] {
  const char* text = std::getenv("OMP_NUM_THREADS");
  int threads = text ? std::atoi(text) : 0;
  return threads > 0 ? threads : usable_cores();
}();

}  // namespace

int usable_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

int team_threads() { return threads_of_thread; }
void set_threads(int threads) { threads_of_thread = threads, balance = {}, alone_until = {}; }
int threads_here() {
  return share_of_thread < 0 && Clock::now() >= alone_until ? team_threads() : 1;
}
int share_here() { return std::max(0, share_of_thread); }

void run_team(int shares, ShareFunction f) {
  if (shares == 1) return f.call(f.f, 0);
  Work work{f};
  int helped = share_of_thread < 0 ? grow(team, shares) : 0;
  auto begin = Clock::now();  // starting threads is no loss of this call's
  for (int s = 1; s < helped; ++s) team[size_t(s - 1)]->post(work);
  auto all_posted = Clock::now();
  for (int s = 0; s < shares; s = std::max(s + 1, helped)) work.run(s);
  // While others want the cores a worker may come late: wait as long as its share would take here.
  auto now = Clock::now();
  auto own = now - all_posted, alone = own * shares;
  auto patience = helped > 1 && crowd.here(now) ? own : own.zero();
  bool helps = false;
  for (int s = helped - 1; s > 0; --s) helps |= !team[size_t(s - 1)]->take_back(now + patience);
  for (int s = helped - 1; s > 0; --s) team[size_t(s - 1)]->wait();
  now = Clock::now();
  if (!helps) alone = now - all_posted - patience;
  balance = std::min<Clock::duration>(balance + alone - (now - begin), most_credit);
  if (balance < -taken) alone_until = now + 10 * -std::exchange(balance, Clock::duration{});
  if (work.failure) std::rethrow_exception(work.failure);
}

}  // namespace triax
