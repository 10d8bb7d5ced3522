#pragma once
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// A rank on the meta device whose peers do not exist: transfers are noted in the ledger and finish
/// at once; peers are taken to answer as this rank does. Any rank of any mesh can so be run alone,
/// to see what it would hold, compute and send.
class MetaComm : public Communicator {
 public:
  explicit MetaComm(Group group) : Communicator(std::move(group)) {}
  /// Makes rank `rank` of a world of `ranks`.
  MetaComm(int ranks, int rank) : MetaComm(Group::world(ranks, rank)) {}

  Device device() const override { return meta_device; }
  const char* transport() const override { return "nothing"; }

 protected:
  Work start(Transfer t) override {
    if (t.call.kind == Call::all_gather && t.to.device() == cpu)
      for (int r = 0; r < size(); ++r)
        copy_(t.to.view({size(), -1}).narrow(0, r, 1), t.from.view({1, -1}));
    return {};
  }

 private:
  std::unique_ptr<Communicator> start_split(Group group, int, int) override {
    return std::make_unique<MetaComm>(std::move(group));
  }
};

}  // namespace triax::parallel
