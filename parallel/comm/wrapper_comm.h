#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// A communicator that stands on another one of the same ranks. Its `start` does what it is for,
/// and hands every other transfer on; its `start_split` wraps what `split_inner` returns.
class WrapperComm : public Communicator {
 public:
  Device device() const override { return inner_->device(); }
  std::shared_ptr<Allocator> allocator() override { return inner_->allocator(); }
  /// Takes out what `comm` stands on, down to the last, and ends the rest.
  static std::unique_ptr<Communicator> innermost(std::unique_ptr<Communicator> comm);

 protected:
  /// `inner` has no operation in flight. An error of one ends both.
  explicit WrapperComm(std::unique_ptr<Communicator> inner);
  /// Gone when a destructor runs.
  Communicator& inner() { return *inner_; }
  /// A transfer among `inner()`, whose ledger does not count it.
  Work start_inner(Transfer t) { return inner_->start(std::move(t)); }
  /// The part of `inner()` that start_split is asked to make. Once in each start_split; for a
  /// communicator of your own use `inner().split`.
  std::unique_ptr<Communicator> split_inner(Group group, int number, int color) {
    return inner_->start_split(std::move(group), number, color);
  }

 private:
  std::unique_ptr<Communicator> inner_;
};

/// Puts a communicator of a program's own around that of all ranks. Called on every rank.
using WrapComm = std::function<std::unique_ptr<WrapperComm>(std::unique_ptr<Communicator> world)>;

}  // namespace triax::parallel
