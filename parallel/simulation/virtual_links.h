#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "triax/core/scoped.h"
#include "triax/parallel/comm/group.h"

namespace triax::parallel {

/// The links of a simulation, where its ranks, threads of this process, tell each other their
/// times. Few of them run at once: when one waits, the last that can go on does, so that what a
/// group of ranks works on stays in the caches.
class VirtualLinks : Immovable {
 public:
  /// Makes those of so many threads, `at_once` of which run.
  VirtualLinks(int threads, int at_once) : elsewhere_(threads), at_once_(at_once), free_(at_once) {}

  /// Names a queue of transfers, which move one after the other: the collectives of a communicator,
  /// or the messages from one of its ranks to another.
  struct Wire {
    uint64_t group;
    int from = -1, to = -1;
    auto operator<=>(const Wire&) const = default;
  };
  /// Holds the time of a rank's call, the seconds that the transfer takes on its link, and whether
  /// it overlaps kernels; otherwise it takes the time of the ranks that wait for it.
  struct Posted {
    double at, takes;
    bool moves_alone;
  };
  struct Thread;
  /// A transfer, which begins when its last rank has called and its wire is free.
  struct Transfer {
    Called first;
    int missing;
    double begin = 0, takes = 0;
    double end = 0;  ///< its begin, if it takes the time of those who wait
    std::vector<Thread*> waiting = {};
  };

  /// Waits until the calling thread may run: at first, and after it has waited elsewhere.
  void take_turn();
  /// Tells that the thread waits elsewhere.
  void pause();
  /// Tells that it has ended; with an error, which ends the waits of all others.
  void leave(std::exception_ptr error = nullptr);
  /// Notes the `number`-th call of a rank on a wire. Throws Error 76 if the first rank's differs.
  std::shared_ptr<Transfer> post(const Wire& wire, int64_t number, const Called& mine,
                                 const Group& group, const Posted& posted);
  /// Returns when all ranks have called. Throws the error of a thread that left with one, and Error
  /// 76 if all wait for each other.
  void wait(Transfer& transfer, const Group& group);

 private:
  struct State {
    double free = 0;
    std::map<int64_t, std::shared_ptr<Transfer>> open = {};
  };
  void go_on(std::vector<Thread*> threads);
  void end_all(std::exception_ptr error);
  void check_progress();

  std::mutex mutex_;
  int elsewhere_, at_once_, free_;  // free_: turns that nobody has
  std::vector<Thread*> ready_;
  std::map<Wire, State> wires_;
  std::exception_ptr error_;
};

}  // namespace triax::parallel
