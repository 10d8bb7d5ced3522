#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "triax/core/scoped.h"
#include "triax/parallel/comm/wrapper_comm.h"
#include "triax/parallel/plan/hardware.h"

namespace triax::parallel {

/// Holds the faults of ranks of a simulation, by rank.
struct Injected {
  std::map<int, double> slow_ranks;  ///< how many times as long its kernels take
  std::map<int, double> slow_links;  ///< how many times as long its transfers take
  std::map<int, double> deaths;      ///< the second of the simulation in which it ends

  /// Returns the rank's number in one of these, or `otherwise`.
  static double of(int rank, const std::map<int, double>& ranks, double otherwise) {
    auto found = ranks.find(rank);
    return found == ranks.end() ? otherwise : found->second;
  }
};

/// The time of one rank on the meta device, in seconds from 0. It goes on while kernels are at
/// work, for as long as the hardware would take (KernelWork of this thread), and jumps where the
/// rank waits for others. Made and used on the rank's thread.
class VirtualClock {
 public:
  /// Kernels take `slowness` times as long. `hardware` must outlive it.
  VirtualClock(const Hardware& hardware, DType dtype, double slowness)
      : hardware_(hardware), dtype_(dtype), slowness_(slowness), seen_(meta_work()) {}

  /// Returns the time, with the kernels that were asked for so far.
  double now() const {
    KernelWork work = meta_work() - seen_;
    return now_ + slowness_ * with_host(hardware_.seconds(work, dtype_), hardware_.launches(work));
  }
  /// Waits until `time`, which may have passed; `why` is a communicator's name.
  void wait_until(double time, const std::string& why) {
    double before = now();
    if (time <= before) return;
    waits_[why.substr(0, why.find(' '))] += time - before;  // `link 3 up` as `link`
    now_ = time, seen_ = meta_work();
  }
  /// Returns the seconds waited, by the first words of names.
  const std::map<std::string, double>& waits() const { return waits_; }
  const Hardware& hardware() const { return hardware_; }

 private:
  const Hardware& hardware_;
  DType dtype_;
  double slowness_, now_ = 0;
  KernelWork seen_;
  std::map<std::string, double> waits_;
};

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

/// Ranks on the meta device, joined by the links and networks of a hardware: what they send has no
/// bytes, but a time. A collective begins when its last rank has come and what was called before it
/// on this communicator is over, and takes Hardware::seconds; a message begins when it is sent,
/// received and those before it have passed, and takes Hardware::message. Senders go on at once.
/// Where cores of a host move the bytes (Hardware::overlaps), a transfer takes the time of those
/// who wait for it. Tensors on the CPU are moved as they are, in no time.
///
/// Clocks depend on each rank's calls alone, so times repeat in every digit.
class VirtualComm final : public WrapperComm {
 public:
  /// Holds what ranks of a simulation share, and the clock of this one; all outlive communicators.
  struct Parts {
    VirtualClock& clock;
    VirtualLinks& links;
    const Injected& injected;
  };
  /// Wraps ranks that are threads of this process: the world or, by its `id`, a part of it.
  VirtualComm(std::unique_ptr<Communicator> inner, const Parts& parts, uint64_t id = 0)
      : WrapperComm(std::move(inner)), p_(parts), id_(id) {}

  Device device() const override { return meta_device; }
  std::shared_ptr<Allocator> allocator() override { return Communicator::allocator(); }
  const char* transport() const override { return "virtual links"; }

 private:
  class Moved;
  class Arrival;
  Work start(Transfer t) override;
  std::unique_ptr<Communicator> start_split(Group group, int number, int color) override;
  /// Returns this rank's post of a call that moves so many bytes. Throws Error 72 once its time has
  /// come.
  VirtualLinks::Posted posted(const Call& call, double bytes) const;

  Parts p_;
  uint64_t id_;
  std::map<VirtualLinks::Wire, int64_t> calls_;
  double sent_ = 0;  ///< bytes of the ledger before this call
};

}  // namespace triax::parallel
