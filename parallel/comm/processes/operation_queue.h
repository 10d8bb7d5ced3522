#pragma once
#include <cstring>
#include <deque>
#include <vector>

#include "triax/parallel/comm/communicator.h"

// The common part of operations between processes. Not for users.
namespace triax::parallel {

/// A call in a form that can cross to another process.
struct PackedCall {
  int64_t numel;
  int32_t peer, line;
  uint32_t table;
  uint8_t kind, op, dtype;
  char file[73];

  static PackedCall of(const Call& c) {
    PackedCall p{c.numel, c.peer,        c.place.line,     c.table,
                 c.kind,  uint8_t(c.op), uint8_t(c.dtype), {}};
    size_t length = std::strlen(c.place.file), room = sizeof p.file - 1;
    const char* tail = c.place.file + (length > room ? length - room : 0);
    std::memcpy(p.file, tail, std::min(length, room));
    return p;
  }
  /// Returns the call, whose `place` points into this.
  Call call() const {
    return {Call::Kind(kind), ReduceOp(op), DType(dtype), peer, numel, {file, line}, table};
  }
};

class OperationQueue;

/// An operation that advances in steps, whenever its rank attends to it.
class QueuedOperation : public Operation {
 public:
  QueuedOperation(std::shared_ptr<OperationQueue> queue, Transfer t);
  bool advance() final;
  void wait() final;
  void abandon(std::exception_ptr error) noexcept final;

  /// Tells the peers of it; called in the order of the calls until it returns true.
  virtual bool announce() { return true; }
  /// Goes on without blocking; true when finished. Throws the error that ends it.
  virtual bool step() = 0;
  /// Returns the ranks of the group that it waits for.
  virtual std::vector<int> missing() const = 0;

 protected:
  const Call& call() const { return transfer_.call; }
  std::byte* from() const { return bytes_of(transfer_.from); }
  std::byte* to() const { return bytes_of(transfer_.to); }
  const Transfer& transfer() const { return transfer_; }

 private:
  friend class OperationQueue;
  static std::byte* bytes_of(const Tensor& x) {
    return x.defined() ? static_cast<std::byte*>(x.data()) : nullptr;
  }
  std::shared_ptr<OperationQueue> queue_;
  Transfer transfer_;
  bool announced_ = false, finished_ = false;
  std::exception_ptr error_;
};

/// The operations of one rank in flight on one communicator: collectives, one after the other, and
/// messages, side by side. Operations keep the queue alive until they are finished; an abandoned
/// one keeps it, and its tensors, for good, since a peer may still touch them.
class OperationQueue final : public Engine {
 public:
  /// `crowded`: ranks that wait must let others run at once.
  OperationQueue(Group group, std::shared_ptr<Fault> fault, bool crowded)
      : group_(std::move(group)), fault_(std::move(fault)), crowded_(crowded) {}
  ~OperationQueue() override;

  const Group& group() const { return group_; }
  bool crowded() const { return crowded_; }
  Work add(std::shared_ptr<QueuedOperation> p);
  void advance() noexcept override;
  Fault& fault() { return *fault_; }
  /// Keeps an object that operations use alive as long as the queue.
  void keep(std::shared_ptr<const void> used) { kept_.push_back(std::move(used)); }

 private:
  static bool run(QueuedOperation& p) noexcept;
  Group group_;
  std::shared_ptr<Fault> fault_;
  bool crowded_, registered_ = false;
  std::deque<std::shared_ptr<QueuedOperation>> collectives_;
  std::vector<std::shared_ptr<QueuedOperation>> messages_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace triax::parallel
