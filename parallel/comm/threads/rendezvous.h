#pragma once
#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "core/error.h"
#include "parallel/comm/call.h"
#include "parallel/comm/movement.h"

// Not for users; see thread_comm.h.
namespace triax::parallel {

/// One collective, or one send with its receive (sender 0, receiver 1). When everybody has come,
/// whoever waits does pieces of it until all are done: reading and writing the peers' own tensors,
/// which stay untouched until their `wait()`.
class Rendezvous {
 public:
  Rendezvous(const Call& call, int ranks);

  /// Under the group's lock. `rank` brings its tensors; the last one makes the rendezvous ready.
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

}  // namespace triax::parallel
