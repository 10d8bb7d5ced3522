#pragma once
#include "parallel/checkpoint/coordinator.h"
#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// The ranks of a communicator, which must outlive it. Texts travel as u8 tensors.
class OverCommunicator final : public Coordinator {
 public:
  explicit OverCommunicator(Communicator& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::string broadcast(const std::string& text) override;
  std::vector<std::string> gather(const std::string& text) override;

 private:
  Communicator& ranks_;
};

}  // namespace triax::parallel
