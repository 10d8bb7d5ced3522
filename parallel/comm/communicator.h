#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "triax/parallel/comm/call.h"
#include "triax/parallel/comm/group.h"
#include "triax/parallel/comm/work.h"

namespace triax::parallel {

/// A fixed, ordered set of ranks that move tensors among themselves.
///
/// Every call is asynchronous: it returns at once, and its tensors must not be touched until
/// `Work::wait()`. All ranks make the same collective calls in the same order; a call that differs
/// is Error 76 naming both. Tensors are defined and contiguous, of any dtype, and of one dtype and
/// size on all ranks; what an op has made with a gradient history is Error 70. Sums are made in
/// rank order (not by NCCL), large ones first on each host, so results repeat bit for bit. A
/// communicator of size 1 copies or does nothing. One rank is one thread, which makes every call.
class Communicator : Immovable {
 public:
  virtual ~Communicator() = default;

  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }
  const Group& group() const { return group_; }

  /// x becomes the sum (max, min) of all ranks' x.
  Work all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum, Place place = Place::here());
  /// all = every rank's mine, by rank; all.numel() = size * mine.numel(). `mine` may be this
  /// rank's slice of `all`.
  Work all_gather(const Tensor& mine, const Tensor& all, Place place = Place::here());
  /// mine = this rank's slice of the sum of all ranks' `all`; all.numel() = size * mine.numel().
  /// `mine` may be this rank's slice of `all`, whose other values stay as they are.
  Work reduce_scatter(const Tensor& all, const Tensor& mine, ReduceOp op = ReduceOp::sum,
                      Place place = Place::here());
  /// x becomes root's x.
  Work broadcast(const Tensor& x, int root, Place place = Place::here());
  /// x becomes the sum of all ranks' x on root; elsewhere it stays.
  Work reduce(const Tensor& x, int root, ReduceOp op = ReduceOp::sum, Place place = Place::here());
  /// all = every rank's mine on root, by rank; elsewhere `all` may be undefined.
  Work gather(const Tensor& mine, const Tensor& all, int root, Place place = Place::here());
  /// mine = this rank's slice of root's all; elsewhere `all` may be undefined.
  Work scatter(const Tensor& all, const Tensor& mine, int root, Place place = Place::here());
  /// Slice r of `mine` goes to rank r, slice r of `all` comes from rank r: `size` equal slices of
  /// tensors of one size, which do not overlap.
  Work all_to_all(const Tensor& mine, const Tensor& all, Place place = Place::here());
  /// Exchanges rows (of dim 0) by a table [sender][receiver] of their numbers, zero allowed, which
  /// all ranks know alike, by all_gather, say: `mine` lies in the order of receivers, `all` in that
  /// of senders.
  Work all_to_all(const Tensor& mine, const Tensor& all, const std::vector<int64_t>& rows,
                  Place place = Place::here());
  /// Sends x to another rank, or receives it. Operations between two ranks match in the order
  /// posted; a send may finish only when its receive is posted.
  Work send(const Tensor& x, int to, Place place = Place::here());
  Work recv(const Tensor& x, int from, Place place = Place::here());
  /// Returns when every rank has called it.
  void barrier(Place place = Place::here());

  /// Collective. One new communicator for each color (at least 0), ranks ordered by key, then by
  /// rank here. `seat_of` tells every rank's seat, alike on all ranks; `name` is for messages.
  struct Seat {
    int color, key;
  };
  std::unique_ptr<Communicator> split(const std::function<Seat(int rank)>& seat_of,
                                      std::string name, Traffic traffic = {},
                                      Place place = Place::here());

  /// Returns the device of the tensors that this transport moves best; below, the memory there in
  /// which it reduces without copies, or else the CPU's own.
  virtual Device device() const { return cpu; }
  virtual std::shared_ptr<Allocator> allocator();
  /// Returns a contiguous tensor from `allocator()`, values not initialised.
  Tensor empty(const Shape& shape, DType dtype);

  /// Names the mover of collectives' bytes, for messages: `threads`, `shared memory`, `NCCL`.
  virtual const char* transport() const = 0;

  /// Returns the calls that this rank made on this communicator since the last reset.
  const Ledger& ledger() const { return ledger_; }
  void reset_ledger() { ledger_ = {}; }

  /// Throws the error that made later calls impossible, if there is one.
  void check_usable() const;

 protected:
  explicit Communicator(Group group) : group_(std::move(group)) {}
  const std::shared_ptr<Fault>& fault() const { return fault_; }

 private:
  friend class WrapperComm;
  Work begin(Transfer t, double bytes);
  Work copy_alone(const Transfer& t) const;
  virtual Work start(Transfer t) = 0;
  /// `number` counts the splits of this communicator, `color` tells apart those made together.
  virtual std::unique_ptr<Communicator> start_split(Group group, int number, int color) = 0;

  Group group_;
  Ledger ledger_;
  std::shared_ptr<Fault> fault_ = std::make_shared<Fault>();
  int splits_ = 0;
};

/// all = `mine` of the rank `by` places before, in a circle; `by` from 1 to size - 1. An
/// all_to_all.
Work shift(Communicator& comm, const Tensor& mine, const Tensor& all, int by,
           Place place = Place::here());

}  // namespace triax::parallel
