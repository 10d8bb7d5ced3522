#include "parallel/comm/processes/across_hosts.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "core/memory.h"

namespace triax::parallel {
namespace {

constexpr int64_t least_bytes = 1 << 16;  // below, one exchange among all ranks is faster
constexpr int64_t chunk_bytes = 1 << 22;  // of an all_reduce, whose levels overlap chunk by chunk

/// Transfers that overlap: those within a host, one after the other, with those between hosts.
struct Phase {
  std::deque<Transfer> within, across;
};

class AcrossHosts final : public Mover {
 public:
  AcrossHosts(std::shared_ptr<const HostLevels> levels, Transfer t)
      : l_(*levels), keep_(std::move(levels)), call_(t.call), waiting_(std::move(t)) {}

  bool step() override {
    if (waiting_.to.defined()) plan(std::exchange(waiting_, {}));
    for (; !phases_.empty(); phases_.pop_front()) {
      bool here = run(phases_.front().within, l_.start_within, within_);
      bool there = run(phases_.front().across, l_.start_across, across_);
      if (!here || !there) return false;
    }
    return true;
  }

  std::vector<int> missing() const override {
    std::vector<int> ranks;
    if (within_.operation)
      for (int r : within_.operation->missing()) ranks.push_back(l_.host * l_.within + r);
    if (across_.operation)
      for (int h : across_.operation->missing()) ranks.push_back(h * l_.within + l_.place);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

 private:
  struct Running {
    std::shared_ptr<QueuedOperation> operation;
    bool announced = false;
  };

  void plan(const Transfer& t) {
    memory::Scope scope(kind_);
    Tensor to = t.to.view({-1});
    if (call_.kind == Call::all_reduce) all_reduce(to);
    else if (call_.kind == Call::reduce_scatter) reduce_scatter(t.from.view({-1}), to);
    else all_gather(t.from.view({-1}), to);
  }

  static bool run(std::deque<Transfer>& waiting, const HostLevels::Start& start, Running& now) {
    for (; !waiting.empty(); now = {}, waiting.pop_front()) {
      if (!now.operation) now.operation = start(waiting.front());
      now.announced = now.announced || now.operation->announce();
      if (!now.announced || !now.operation->step()) return false;
    }
    return true;
  }

  Transfer part(Call::Kind kind, const Tensor& from, const Tensor& to) const {
    Call c = call_;
    c.kind = kind;
    c.numel = std::min(from.numel(), to.numel());
    return {c, from, to};
  }
  Phase& phase(size_t i) {
    if (phases_.size() <= i) phases_.resize(i + 1);
    return phases_[i];
  }

  /// Overlaps chunks: while one is between hosts, the next is summed, and the one before is spread.
  void all_reduce(const Tensor& x) {
    int64_t unit = l_.within, rest = x.numel() % unit, even = x.numel() - rest;
    int64_t most = std::max<int64_t>(1, chunk_bytes / int64_t(size_of(x.dtype())) / unit) * unit;
    size_t i = 0;
    for (int64_t at = 0; at < even; at += most, ++i) {
      Tensor chunk = x.narrow(0, at, std::min(most, even - at));
      int64_t share = chunk.numel() / unit;
      Tensor mine = chunk.narrow(0, l_.place * share, share);
      phase(i).within.push_front(part(Call::reduce_scatter, chunk, mine));
      phase(i + 1).across.push_back(part(Call::all_reduce, mine, mine));
      phase(i + 2).within.push_back(part(Call::all_gather, mine, chunk));
    }
    if (rest == 0) return;
    Tensor end = x.narrow(0, even, rest);
    phase(i).within.push_back(part(Call::all_reduce, end, end));
    phase(i + 1).across.push_back(part(Call::all_reduce, end, end));
  }

  Tensor of_host(const Tensor& all, int host) const {
    int64_t length = all.numel() / l_.hosts;
    return all.narrow(0, host * length, length);
  }

  /// Returns memory for a slice of `mine`'s size for each host.
  Tensor gathered(const Tensor& mine) const {
    auto bytes = size_t(l_.hosts) * mine.bytes();
    auto storage = std::make_shared<Storage>(bytes, cpu, l_.allocator);
    return Tensor(std::move(storage), mine.dtype(), {l_.hosts * mine.numel()}, {1});
  }

  void reduce_scatter(const Tensor& all, const Tensor& mine) {
    Tensor sums = gathered(mine);
    for (int h = 0; h < l_.hosts; ++h)
      phase(0).within.push_back(part(Call::reduce_scatter, of_host(all, h), of_host(sums, h)));
    phase(1).across.push_back(part(Call::reduce_scatter, sums, mine));
  }

  void all_gather(const Tensor& mine, const Tensor& all) {
    Tensor slices = gathered(mine);
    phase(0).across.push_back(part(Call::all_gather, mine, slices));
    for (int h = 0; h < l_.hosts; ++h)
      phase(1).within.push_back(part(Call::all_gather, of_host(slices, h), of_host(all, h)));
  }

  const HostLevels& l_;
  std::shared_ptr<const HostLevels> keep_;
  Call call_;
  Transfer waiting_;  ///< until the first step
  memory::Kind kind_ = memory::current_kind();
  std::deque<Phase> phases_;
  Running within_, across_;
};

}  // namespace

std::shared_ptr<Mover> mover_across_hosts(std::shared_ptr<const HostLevels> levels, Transfer t) {
  bool known = t.call.kind == Call::all_reduce || t.call.kind == Call::reduce_scatter ||
               t.call.kind == Call::all_gather;
  if (!known || t.call.numel * int64_t(size_of(t.call.dtype)) < least_bytes) return {};
  return std::make_shared<AcrossHosts>(std::move(levels), std::move(t));
}

}  // namespace triax::parallel
