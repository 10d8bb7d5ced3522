#pragma once
#include <cstdint>

// The threads that share a kernel's work. Those of OpenMP spin whatever happens, which costs other
// programs the core, and this one what a container's quota leaves it.
namespace triax {

/// Returns the cores this process may run on (its affinity mask, which launchers narrow).
int usable_cores();
/// Returns OMP_NUM_THREADS, of a list its first; 0 if it is unset or empty, -1 if it is no number.
int threads_asked_for();
/// Returns the threads that share the work of the calling thread: OMP_NUM_THREADS, or one for each
/// core, unless set_threads() was called on it.
int team_threads();
void set_threads(int threads);
/// Returns the threads for in_team() here: one inside another, or if waiting for cores is slower.
int threads_here();
/// Returns the share that the calling thread does; 0 outside of in_team().
int share_here();

/// A function of the number of a share, without the ownership of std::function.
struct ShareFunction {
  void (*call)(const void* f, int share);
  const void* f;
};
void run_team(int shares, ShareFunction f);

/// Calls f(share) once for each of [0, shares), on this thread and others of its own. They wait for
/// the next call spinning for at most 5 ms, then blocked, and blocked at once while others want the
/// cores. A share that no other thread has begun by the end of share 0 is done here, so that nobody
/// waits for a thread that has no core. Throws the first exception of a share, after all have
/// ended.
template <class F> void in_team(int64_t shares, const F& f) {
  run_team(int(shares), {[](const void* g, int share) { (*static_cast<const F*>(g))(share); }, &f});
}

/// Calls f(task, share) for each of [0, tasks), on the first thread of a team that is free.
template <class F> void in_turns(int64_t tasks, int64_t shares, const F& f) {
  int64_t next = 0;
  in_team(shares, [&](int share) {
    for (int64_t task; (task = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < tasks;)
      f(task, share);
  });
}

}  // namespace triax
