#pragma once
#include "parallel/comm/communicator.h"

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
    if (t.call.kind == Call::counts) mirror(t.from, t.to);
    return {};
  }

 private:
  std::unique_ptr<Communicator> start_split(Group group, int, int) override {
    return std::make_unique<MetaComm>(std::move(group));
  }
  /// Fills in an all_to_all's peers, who send what this rank expects and expect what it sends.
  void mirror(const Tensor& mine, const Tensor& all) const {
    auto n = size_t(size()), me = size_t(rank());
    auto own = mine.to_host<int64_t>();
    std::vector<int64_t> told(2 * n * n);
    for (size_t r = 0; r < n; ++r) {
      told[r * 2 * n + me] = own[n + r];
      told[r * 2 * n + n + me] = own[r];
    }
    std::copy(own.begin(), own.end(), told.begin() + std::ptrdiff_t(me * 2 * n));
    copy_(all, from_host(told, all.shape(), cpu));
  }
};

}  // namespace triax::parallel
