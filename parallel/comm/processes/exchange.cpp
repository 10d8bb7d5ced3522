#include "triax/parallel/comm/processes/exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <utility>

#include "triax/core/memory.h"
#include "triax/parallel/comm/movement.h"

namespace triax::parallel {
namespace {

constexpr int call_tag = 1, message_call_tag = 2, message_tag = 3, first_collective_tag = 16;
constexpr size_t chunk_bytes = size_t{1} << 22;

struct Bytes {
  std::byte* data;
  size_t bytes;
};

/// Transfers in flight, with their peers.
class Requests {
 public:
  explicit Requests(PointToPoint& p2p) : p2p_(p2p) {}
  void send(Bytes p, int to, int tag) {
    if (p.bytes) open_.push_back({p2p_.send(p.data, p.bytes, to, tag), to});
  }
  void receive(Bytes p, int from, int tag) {
    if (p.bytes) open_.push_back({p2p_.receive(p.data, p.bytes, from, tag), from});
  }
  bool finished() {
    std::erase_if(open_, [](const Open& o) { return o.over(); });
    return open_.empty();
  }
  std::vector<int> peers() const {
    std::set<int> ranks;
    for (const Open& o : open_) ranks.insert(o.peer);
    return {ranks.begin(), ranks.end()};
  }

 private:
  struct Open {
    PointToPoint::Request over;
    int peer;
  };
  PointToPoint& p2p_;
  std::vector<Open> open_;
};

/// An exchange. Each rank sends its call to the next one, so that both sides of a disagreement see
/// it. Data of a call that differs has another tag and is never taken for this call's.
class ExchangeOperation final : public QueuedOperation {
 public:
  ExchangeOperation(std::shared_ptr<OperationQueue> queue, Transfer t, PointToPoint& p2p,
                    int64_t number, std::shared_ptr<Mover> mover)
      : QueuedOperation(queue, std::move(t)),
        mover_(std::move(mover)),
        group_(queue->group()),
        n_(group_.size()),
        me_(group_.rank),
        number_(number),
        size_(size_of(call().dtype)),
        mine_bytes_(size_t(call().numel) * size_),
        calls_(p2p),
        data_(p2p) {
    size_t h = 1469598103934665603ull;
    for (int64_t v : {number, int64_t(call().kind), int64_t(call().op), int64_t(call().dtype),
                      int64_t(call().peer), call().numel})
      h = (h ^ size_t(v)) * 1099511628211ull;
    tag_ = first_collective_tag + int((h >> 32) % 32000);  // MPI promises tags up to 32767
  }

  bool step() override {
    if (!begun_) begin();
    if (!compared_ && calls_.finished()) compare();
    if (mover_) moved_ = compared_ && mover_->step();
    else
      while (!moved_ && data_.finished()) moved_ = !next_round(round_++);
    return compared_ && moved_;
  }

  std::vector<int> missing() const override {
    if (!compared_) return calls_.peers();
    return mover_ ? mover_->missing() : data_.peers();
  }

 private:
  int left() const { return (me_ + n_ - 1) % n_; }

  void begin() {
    begun_ = true;
    mine_ = PackedCall::of(call());
    calls_.send({reinterpret_cast<std::byte*>(&mine_), sizeof mine_}, (me_ + 1) % n_, call_tag);
    calls_.receive({reinterpret_cast<std::byte*>(&left_), sizeof left_}, left(), call_tag);
  }

  void compare() {
    Call other = left_.call();
    if (!other.matches(call()))
      throw disagreement(group_, number_ + 1, {left(), other}, {me_, call()});
    compared_ = true;
  }

  /// Posts the transfers of one round, after those of the one before are over. False at the end.
  bool next_round(int64_t round) {
    if (call().kind == Call::barrier) return meet(round);
    bool sums = call().kind == Call::all_reduce || call().kind == Call::reduce ||
                call().kind == Call::reduce_scatter;
    bool all_to_all = call().kind == Call::all_to_all;
    chunk_ = chunk_bytes / (to_slices() || all_to_all ? size_t(n_) : 1) / 64 * 64;
    size_t per_chunk = sums ? 2 : 1;
    begin_ = size_t(round) / per_chunk * chunk_;
    bool second = size_t(round) % per_chunk == 1;
    if (begin_ >= mine_bytes_) return false;
    bytes_ = std::min(chunk_, mine_bytes_ - begin_);
    if (all_to_all) swap_slices();
    else if (!sums) copy_out();
    else if (!second) spread();
    else collect();
    return true;
  }

  /// Meets: after round k everybody knows of 2^k ranks (Hensgen, Finkel and Manber 1988).
  bool meet(int64_t round) {
    int64_t step = int64_t{1} << round;
    if (step >= n_) return false;
    data_.send({&token_, 1}, int((me_ + step) % n_), tag_);
    data_.receive({&token_, 1}, int((me_ + n_ - step % n_) % n_), tag_);
    return true;
  }

  bool to_slices() const { return call().kind == Call::reduce_scatter; }

  /// Returns the bytes of the input that rank r sums in this chunk.
  Bytes slice(std::byte* x, int r) const {
    if (to_slices()) return {x + size_t(r) * mine_bytes_ + begin_, bytes_};
    size_t count = bytes_ / size_, n = size_t(n_);
    size_t first = count * size_t(r) / n, last = count * size_t(r + 1) / n;
    return {x + begin_ + first * size_, (last - first) * size_};
  }

  void spread() {
    size_t mine = slice(from(), me_).bytes;
    scratch_.resize(mine * size_t(n_));
    for (int r = 0; r < n_; ++r) {
      if (r == me_) continue;
      data_.send(slice(from(), r), r, tag_);
      data_.receive({scratch_.data() + size_t(r) * mine, mine}, r, tag_);
    }
  }

  void collect() {
    Bytes mine = slice(from(), me_);
    std::vector<const std::byte*> parts;
    for (int r = 0; r < n_; ++r)
      parts.push_back(r == me_ ? mine.data : scratch_.data() + size_t(r) * mine.bytes);
    std::byte* sum = to_slices() ? to() + begin_
                     : to()      ? slice(to(), me_).data
                                 : scratch_.data() + size_t(me_) * mine.bytes;
    reduce(call().op, call().dtype, parts, {&sum, 1}, int64_t(mine.bytes / size_));
    if (to_slices()) return;
    for (int r = 0; r < n_; ++r) {
      if (r == me_) continue;
      if (call().peer < 0 || call().peer == r) data_.send({sum, mine.bytes}, r, tag_);
      if (to()) data_.receive(slice(to(), r), r, tag_);
    }
  }

  void copy_out() {
    int root = call().peer;
    auto piece = [&](std::byte* x, int slice_of) {
      return Bytes{x + size_t(slice_of) * mine_bytes_ + begin_, bytes_};
    };
    bool in_slices = call().kind == Call::scatter, whole = call().kind == Call::broadcast;
    bool gathers = call().kind == Call::gather;
    auto takes = [&](int r) { return root < 0 || (r == root) == gathers; };
    auto brings = [&](int r) { return root < 0 || (r == root) != gathers; };
    for (int r = 0; r < n_; ++r) {
      if (r == me_) continue;
      if (brings(me_) && takes(r)) data_.send(piece(from(), in_slices ? r : 0), r, tag_);
      if (takes(me_) && brings(r)) data_.receive(piece(to(), in_slices || whole ? 0 : r), r, tag_);
    }
    if (whole || !from() || !to()) return;
    Bytes x = piece(from(), in_slices ? me_ : 0), y = piece(to(), in_slices ? 0 : me_);
    if (x.data != y.data) std::memcpy(y.data, x.data, x.bytes);
  }

  void swap_slices() {
    for (int r = 0; r < n_; ++r) {
      Slice out = call().slice(n_, me_, r), in = call().slice(n_, r, me_);
      Bytes x{nullptr, out.within(begin_, bytes_)}, y{nullptr, in.within(begin_, bytes_)};
      if (x.bytes) x.data = from() + out.from + begin_;  // null where a rank has no rows
      if (y.bytes) y.data = to() + in.to + begin_;
      if (r != me_) {
        data_.send(x, r, tag_);
        data_.receive(y, r, tag_);
      } else if (x.bytes) {
        std::memcpy(y.data, x.data, x.bytes);
      }
    }
  }

  std::shared_ptr<Mover> mover_;
  const Group& group_;
  int n_, me_, tag_;
  int64_t number_, round_ = 0;
  size_t size_, mine_bytes_, chunk_ = 0, begin_ = 0, bytes_ = 0;
  PackedCall mine_, left_;
  Requests calls_, data_;
  std::vector<std::byte> scratch_;
  std::byte token_{};
  bool begun_ = false, compared_ = false, moved_ = false;
};

class Message final : public QueuedOperation {
 public:
  Message(std::shared_ptr<OperationQueue> queue, Transfer t, PointToPoint& p2p)
      : QueuedOperation(queue, std::move(t)),
        group_(queue->group()),
        call_requests_(p2p),
        data_(p2p) {
    Bytes packed{reinterpret_cast<std::byte*>(&call_of_sender_), sizeof call_of_sender_};
    if (sends()) {
      call_of_sender_ = PackedCall::of(call());
      call_requests_.send(packed, call().peer, message_call_tag);
      data_.send({from(), transfer().from.bytes()}, call().peer, message_tag);
    } else {
      call_requests_.receive(packed, call().peer, message_call_tag);
      data_.receive({to(), transfer().to.bytes()}, call().peer, message_tag);
    }
  }

  bool step() override {
    if (!compared_ && call_requests_.finished()) compare();
    return compared_ && data_.finished();
  }

  std::vector<int> missing() const override { return {call().peer}; }

 private:
  bool sends() const { return call().kind == Call::send; }

  void compare() {
    Call other = call_of_sender_.call();
    if (!sends() && (other.dtype != call().dtype || other.numel != call().numel))
      throw disagreement(group_, 0, {call().peer, other}, {group_.rank, call()});
    compared_ = true;
  }

  const Group& group_;
  PackedCall call_of_sender_;
  Requests call_requests_, data_;
  bool compared_ = false;
};

/// Below, one exchange among all ranks is faster than two levels.
constexpr int64_t least_bytes = 1 << 16;
/// The chunk of an all_reduce across hosts, whose levels overlap chunk by chunk.
constexpr int64_t level_bytes = 1 << 22;

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
    int64_t most = std::max<int64_t>(1, level_bytes / int64_t(size_of(x.dtype())) / unit) * unit;
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

std::shared_ptr<QueuedOperation> exchange(std::shared_ptr<OperationQueue> queue, Transfer t,
                                          PointToPoint& p2p, int64_t number,
                                          std::shared_ptr<Mover> mover) {
  return std::make_shared<ExchangeOperation>(std::move(queue), std::move(t), p2p, number,
                                             std::move(mover));
}

std::shared_ptr<QueuedOperation> message(std::shared_ptr<OperationQueue> queue, Transfer t,
                                         PointToPoint& p2p) {
  return std::make_shared<Message>(std::move(queue), std::move(t), p2p);
}

std::shared_ptr<Mover> mover_across_hosts(std::shared_ptr<const HostLevels> levels, Transfer t) {
  bool known = t.call.kind == Call::all_reduce || t.call.kind == Call::reduce_scatter ||
               t.call.kind == Call::all_gather;
  if (!known || t.call.numel * int64_t(size_of(t.call.dtype)) < least_bytes) return {};
  return std::make_shared<AcrossHosts>(std::move(levels), std::move(t));
}

}  // namespace triax::parallel
