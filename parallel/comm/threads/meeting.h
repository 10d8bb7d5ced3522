#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "core/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/movement.h"

// What the ranks of one process share. Not for users; see thread_comm.h.
namespace triax::parallel {

/// One collective, or one send with its receive (sender 0, receiver 1). When everybody has come,
/// whoever waits does pieces of it until all are done: reading and writing the peers' own tensors,
/// which stay untouched until their `wait()`.
class Meeting {
 public:
  Meeting(const Call& call, int ranks);

  /// Under the hub's lock. `rank` brings its tensors; the last one makes the meeting ready.
  void arrive(int rank, const Transfer& t);
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  bool finished() const { return done_.load(std::memory_order_acquire) == pieces_; }
  /// Do what is left to be done. True if this call finished the last piece.
  bool help();
  /// After `finished()`: this rank's tensors are its own again.
  void leave(int rank);

  Call call;
  int first = -1;  ///< who came first; `call` is its call
  std::set<int> missing;
  std::shared_ptr<Error> mismatch;

 private:
  Buffers buffers_;
  std::vector<Transfer> held_;
  int64_t elements_ = 0, piece_ = 1, pieces_ = 0;
  std::atomic<bool> ready_ = false;
  std::atomic<int64_t> next_ = 0, done_ = 0;
};

struct Hub;

/// What happens to one rank concerns all ranks of the process.
class Fate {
 public:
  explicit Fate(int ranks) : ended_(size_t(ranks)) {}
  /// A rank failed: every wait that cannot be met any more ends with `why`. The first counts.
  void fail(const std::string& why);
  /// A rank returned; it will not come to any meeting.
  void end(int rank);
  bool failed() const { return failed_; }
  bool ended(int rank) const { return ended_[size_t(rank)]; }
  std::string why();
  void join(const std::shared_ptr<Hub>& hub);

 private:
  void wake();
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  std::vector<std::atomic<bool>> ended_;
  std::string why_;
  std::vector<std::weak_ptr<Hub>> hubs_;
};

/// A send or receive that waits for its other side.
struct Message {
  Call call;
  Transfer transfer;
  std::shared_ptr<Meeting> meeting;  ///< once matched
};

/// What the ranks of one group share.
struct Hub {
  Hub(Group g, std::shared_ptr<Fate> f) : group(std::move(g)), fate(std::move(f)) {}
  const Group group;  ///< its `rank` means nothing
  const std::shared_ptr<Fate> fate;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings;           ///< not yet complete
  std::map<int, std::vector<std::shared_ptr<Message>>> messages;  ///< by rank, as posted
  struct Child {
    std::shared_ptr<Hub> hub;
    int left;  ///< members that have not come for it
  };
  std::map<std::pair<int, int>, Child> children;  ///< by number of the split and color

  /// Collective number `number` of `rank`.
  std::shared_ptr<Meeting> meet(int rank, int64_t number, const Transfer& t);
  /// Sends and receives match in posting order, as a stream of NCCL does it: only the oldest of a
  /// rank can match, and a send is done when its receive is.
  std::shared_ptr<Message> post(int rank, const Transfer& t);
  std::shared_ptr<Hub> child(const Group& g, int number, int color);
  void notify();

 private:
  void match();
};

}  // namespace triax::parallel
