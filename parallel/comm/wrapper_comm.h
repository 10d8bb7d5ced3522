#pragma once
#include <functional>
#include <memory>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// A communicator on top of another one of the same ranks. Its `start` handles its own transfers
/// and hands every other on; its `start_split` wraps the result of `split_inner`.
class WrapperComm : public Communicator {
 public:
  Device device() const override { return inner_->device(); }
  std::shared_ptr<Allocator> allocator() override { return inner_->allocator(); }
  /// Takes out the innermost communicator under `comm`, and ends the rest.
  static std::unique_ptr<Communicator> innermost(std::unique_ptr<Communicator> comm) {
    while (auto* wrapper = dynamic_cast<WrapperComm*>(comm.get())) {
      auto inner = std::move(wrapper->inner_);
      comm = std::move(inner);
    }
    return comm;
  }

 protected:
  /// `inner` must have no operation in flight. An error of one ends both.
  explicit WrapperComm(std::unique_ptr<Communicator> inner)
      : Communicator(inner->group()), inner_(std::move(inner)) {
    fault_ = inner_->fault_;
  }
  /// Returns the inner communicator; it is gone when a destructor runs.
  Communicator& inner() { return *inner_; }
  /// Starts a transfer among `inner()`, whose ledger does not count it.
  Work start_inner(Transfer t) { return inner_->start(std::move(t)); }
  /// Returns the part of `inner()` that start_split is asked to make. Once in each start_split; for
  /// a communicator of your own use `inner().split`.
  std::unique_ptr<Communicator> split_inner(Group group, int number, int color) {
    return inner_->start_split(std::move(group), number, color);
  }

 private:
  std::unique_ptr<Communicator> inner_;
};

/// Wraps the communicator of all ranks in a program's own. Called on every rank.
using WrapComm = std::function<std::unique_ptr<WrapperComm>(std::unique_ptr<Communicator> world)>;

}  // namespace triax::parallel
