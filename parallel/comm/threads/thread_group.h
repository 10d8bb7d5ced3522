#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "triax/core/error.h"
#include "triax/parallel/comm/communicator.h"
#include "triax/parallel/comm/movement.h"

// The state that ranks of one process share. Not for users; see thread_comm.h.
namespace triax::parallel {

/// One collective, or one send with its receive (sender 0, receiver 1). When everybody has come,
/// whoever waits does pieces of it until all are done: reading and writing the peers' own tensors,
/// which stay untouched until their `wait()`.
class Rendezvous {
 public:
  Rendezvous(const Call& call, int ranks);

  /// Brings the tensors of `rank`, under the group's lock; the last one makes the rendezvous ready.
  void arrive(int rank, const Transfer& t);
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  bool finished() const { return done_.load(std::memory_order_acquire) == pieces_; }
  /// Does the pieces that are left. True if this call finished the last one.
  bool help();
  /// Gives this rank its tensors back. Call it after `finished()`.
  void leave(int rank) { held_[size_t(rank)] = {}; }

  Call call;
  int first = -1;  ///< the rank that came first; `call` is its call
  std::set<int> missing;
  std::shared_ptr<Error> mismatch;

 private:
  RankBuffers buffers_;
  std::vector<Transfer> held_;
  int64_t elements_ = 0, piece_ = 1, pieces_ = 0;
  std::atomic<bool> ready_ = false;
  std::atomic<int64_t> next_ = 0, done_ = 0;
};

struct ThreadGroup;

/// The ranks of the process that have returned or failed, which ends the waits of the others.
class RankStatus {
 public:
  explicit RankStatus(int ranks) : ended_(size_t(ranks)) {}
  /// Notes that a rank failed: every wait that cannot succeed any more ends with the first `why`.
  void fail(const std::string& why);
  /// Notes that a rank returned; it will not come to any rendezvous.
  void end(int rank);
  bool failed() const { return failed_; }
  bool ended(int rank) const { return ended_[size_t(rank)]; }
  std::string why();
  /// Adds a group whose waits are woken.
  void add(const std::shared_ptr<ThreadGroup>& group);

 private:
  void wake();
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  std::vector<std::atomic<bool>> ended_;
  std::string why_;
  std::vector<std::weak_ptr<ThreadGroup>> groups_;
};

/// A send or receive that waits for its other side.
struct PostedMessage {
  Call call;
  Transfer transfer;
  std::shared_ptr<Rendezvous> rendezvous;  ///< once matched
};

/// The state that ranks of one group share.
struct ThreadGroup {
  ThreadGroup(Group g, std::shared_ptr<RankStatus> s) : group(std::move(g)), status(std::move(s)) {}
  const Group group;  ///< its `rank` is unused
  const std::shared_ptr<RankStatus> status;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, std::shared_ptr<Rendezvous>> collectives;           ///< not yet complete
  std::map<int, std::vector<std::shared_ptr<PostedMessage>>> messages;  ///< by rank, as posted
  struct Child {
    std::shared_ptr<ThreadGroup> group;
    int left;  ///< members that have not come for it
  };
  std::map<std::pair<int, int>, Child> children;  ///< by number of the split and color

  /// Enters collective number `number` of `rank`.
  std::shared_ptr<Rendezvous> enter(int rank, int64_t number, const Transfer& t);
  /// Posts a send or receive. They match in posting order, as in a stream of NCCL: only the oldest
  /// of a rank can match, and a send is done when its receive is.
  std::shared_ptr<PostedMessage> post(int rank, const Transfer& t);
  std::shared_ptr<ThreadGroup> child(const Group& g, int number, int color);
  void notify();

 private:
  void match();
};

}  // namespace triax::parallel
