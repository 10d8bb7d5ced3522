#pragma once
#include <nccl.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "tests/gpu_on_cpu/device.h"
#include "triax/parallel/comm/call.h"

namespace triax::gpu_on_cpu::nccl {

/// Holds the request that a rank brings to a meeting.
struct Brought {
  parallel::Call::Kind kind;
  parallel::ReduceOp op;
  DType dtype;
  int peer;
  int64_t numel;
  Where from, to;

  size_t bytes() const { return size_t(numel) * size_of(dtype); }
  parallel::Call call() const {
    return {.kind = kind, .op = op, .dtype = dtype, .peer = peer, .numel = numel};
  }
};

/// A place where parties come again and again: the ranks of a communicator for its collectives, the
/// two of a message. A party comes to the next only when the one before is over.
template <int most> struct Meeting {
  uint32_t here;  // a bit for each party
  int64_t over;   // so many are
  Brought parts[most];
};

/// Messages from one rank to another. With room for them (Options::nccl_room) the sender leaves
/// what nobody has come for, and goes on, as with NCCL's FIFO; else it waits for the receiver.
struct Link {
  static constexpr int most = 128;             // left messages
  static constexpr size_t most_bytes = 65536;  // of them
  static constexpr int64_t over = -1;          // in place of the number of a meeting

  Meeting<2> meeting;
  int left;
  struct {
    DType dtype;
    int64_t numel;
  } what[most];
  size_t bytes;
  char data[most_bytes];

  bool has_room(const Brought& part, size_t room) const;
  void leave(const Brought& part);
  /// Gives the oldest one to its receiver. False if it asked for another.
  bool take(const Brought& part);
};

/// Where the ranks of one unique id meet, threads of one process or processes of one host: in
/// memory that they share. A process that is killed leaves nothing behind, and nothing locked.
class Board {
 public:
  static constexpr int most_ranks = 16, most_cliques = 256, most_splits = 64;

  /// The ranks of one communicator.
  struct Clique {
    int parent, number, color;  // the split that made it
    int size, joined;
    ncclResult_t errors[most_ranks];
    Meeting<most_ranks> collectives;
    int devices[most_ranks];             // of those that have joined, plus 1
    Link links[most_ranks][most_ranks];  // from, to
    struct {
      int told;
      struct {
        int color, key;
      } seats[most_ranks];  // by rank
    } splits[most_splits];
  };

  /// Returns a new one's id.
  static ncclUniqueId make();
  /// Returns that of an id; null if its process is gone.
  static std::shared_ptr<Board> of(const ncclUniqueId& id);
  explicit Board(int file);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Wakes who waits for something to change.
  void notify();
  void lock();
  void unlock();
  // All that follows under the lock.
  /// Waits until is_so(), which it asks under the lock, at least every few milliseconds.
  template <class F> void wait(F is_so) {
    while (!is_so()) sleep();
  }
  /// Returns the clique of a split, made by whoever comes first; -1 is the parent of the first.
  int clique_of(int parent, int number, int color, int size);
  Clique& clique(int index);
  /// Checks the number of a split.
  static void check_split(int number) {
    if (number >= most_splits) refuse("too many splits of one communicator");
  }

  /// Brings a part; the last party moves the bytes of all. Returns the number of this meeting,
  /// which is over when `over` is larger.
  template <int most>
  int64_t come(Clique& clique, Meeting<most>& meeting, int party, int parties,
               const Brought& part) {
    if (meeting.here & (1u << party)) refuse("a rank comes twice to one meeting");
    meeting.parts[party] = part;
    meeting.here |= 1u << party;
    int64_t number = meeting.over;
    if (meeting.here == (1u << parties) - 1) {
      meeting.here = 0;
      meeting.over += move_all(clique, meeting.parts, parties);
      notify();
    }
    return number;
  }

  /// Brings a message; returns as come() does.
  int64_t send(Clique& clique, Link& link, const Brought& part);
  int64_t receive(Clique& clique, Link& link, const Brought& part);

 private:
  struct Shared;
  [[noreturn]] static void refuse(const char* why);
  void sleep();
  /// False, and an error for all, if parties ask for something else than others.
  static bool move_all(Clique& clique, const Brought* parts, int parties);
  Shared* shared_;
};

}  // namespace triax::gpu_on_cpu::nccl
