#pragma once
#include <deque>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/progress.h"

// What operations between processes have in common. Not for users.
namespace triax::parallel {

class Lane;

/// An operation that goes on in steps, whenever its rank looks after it.
class Pending : public Operation {
 public:
  Pending(std::shared_ptr<Lane> lane, Transfer t);
  bool advance() final;
  void wait() final;
  void abandon(std::exception_ptr error) noexcept final;

  /// Tell the peers of it; called in the order of the calls until it says true.
  virtual bool announce() { return true; }
  /// Go on without blocking; true when finished. Throws what ends it.
  virtual bool step() = 0;
  /// Ranks of the group that it waits for.
  virtual std::vector<int> missing() const = 0;

 protected:
  const Call& call() const { return transfer_.call; }
  std::byte* from() const { return bytes_of(transfer_.from); }
  std::byte* to() const { return bytes_of(transfer_.to); }
  const Transfer& transfer() const { return transfer_; }

 private:
  friend class Lane;
  static std::byte* bytes_of(const Tensor& x) {
    return x.defined() ? static_cast<std::byte*>(x.data()) : nullptr;
  }
  std::shared_ptr<Lane> lane_;
  Transfer transfer_;
  bool announced_ = false, finished_ = false;
  std::exception_ptr error_;
};

/// What one rank has in flight on one communicator: collectives, one after the other, and messages,
/// side by side. Operations keep the lane alive until they are finished; one that was abandoned
/// keeps it, and its tensors, for good, since a peer may still touch them.
class Lane final : public Engine {
 public:
  /// `crowded`: ranks that wait must let others run at once.
  Lane(Group group, std::shared_ptr<Fault> fault, bool crowded)
      : group_(std::move(group)), fault_(std::move(fault)), crowded_(crowded) {}
  ~Lane() override;

  const Group& group() const { return group_; }
  bool crowded() const { return crowded_; }
  Work add_collective(std::shared_ptr<Pending> p);
  Work add_message(std::shared_ptr<Pending> p);
  void advance() noexcept override;
  /// No later operation can run.
  void spoil(std::exception_ptr error) noexcept;
  std::exception_ptr error() const { return fault_->error; }
  /// What operations use lives as long as the lane.
  void keep(std::shared_ptr<const void> used) { kept_.push_back(std::move(used)); }

 private:
  Work started(const std::shared_ptr<Pending>& p);
  static bool run(Pending& p) noexcept;
  Group group_;
  std::shared_ptr<Fault> fault_;
  bool crowded_, registered_ = false;
  std::deque<std::shared_ptr<Pending>> collectives_;
  std::vector<std::shared_ptr<Pending>> messages_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace triax::parallel
