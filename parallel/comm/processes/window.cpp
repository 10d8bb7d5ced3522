#include "triax/parallel/comm/processes/window.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "triax/core/profile.h"
#include "triax/core/shared/team.h"
#include "triax/parallel/comm/movement.h"

namespace triax::parallel {
namespace {

constexpr auto acquire = std::memory_order_acquire;
constexpr auto publish = std::memory_order_release;

constexpr size_t header_bytes = 64;

/// True for kinds whose input is one slice for each rank.
bool brings_slices(Call::Kind k) {
  return k == Call::reduce_scatter || k == Call::scatter || k == Call::all_to_all;
}

/// The steps of a collective through buffers of fixed size, one per rank, round by round: every
/// rank puts a part of its input into its buffer; when all have, every rank takes its result out of
/// all buffers. Pure arithmetic on memory; the caller does the waiting.
class Staging {
 public:
  Staging(const Call& call, int rank, int ranks, size_t buffer_bytes)
      : call_(call),
        rank_(rank),
        ranks_(ranks),
        size_(size_of(call.dtype)),
        mine_bytes_(size_t(call.numel) * size_),
        round_bytes_(buffer_bytes / (brings_slices(call.kind) ? size_t(ranks) : 1) / 64 * 64),
        rounds_(int64_t((mine_bytes_ + round_bytes_ - 1) / round_bytes_)),
        reduces_first_(call.kind == Call::all_reduce && ranks > 2 && mine_bytes_ > 4096) {}

  int64_t rounds() const { return rounds_; }
  void put(int64_t round, const std::byte* from, std::byte* buffer) const {
    Part p = part(round);
    if (call_.kind == Call::all_to_all) {
      for (int to = 0; to < ranks_; ++to) {
        Slice s = call_.slice(ranks_, rank_, to);
        if (size_t bytes = s.within(p.begin, p.bytes))
          std::memcpy(buffer + size_t(to) * p.bytes, from + s.from + p.begin, bytes);
      }
      return;
    }
    int slices = brings_slices(call_.kind) ? ranks_ : 1;
    for (int s = 0; s < slices; ++s)
      std::memcpy(buffer + size_t(s) * p.bytes, from + size_t(s) * mine_bytes_ + p.begin, p.bytes);
  }
  /// True for large sums among more than two ranks: each rank first sums one slice of the round,
  /// which is less work than every rank summing everything. reduce_slice() is then called between
  /// put and take, each with a wait for the others.
  bool reduces_first() const { return reduces_first_; }
  void reduce_slice(int64_t round, const std::vector<std::byte*>& buffers) const {
    Part s = slice(part(round), rank_);
    std::vector<const std::byte*> from;
    for (auto* b : buffers) from.push_back(b + s.begin);
    std::byte* to = buffers[size_t(rank_)] + s.begin;
    reduce(call_.op, call_.dtype, from, {&to, 1}, int64_t(s.bytes / size_));
  }
  /// Takes this rank's result of a round; does nothing on ranks that get none.
  void take(int64_t round, const std::vector<std::byte*>& buffers, std::byte* to) const {
    Part p = part(round);
    if (call_.kind == Call::all_to_all) {
      for (int from = 0; from < ranks_; ++from) {
        Slice s = call_.slice(ranks_, from, rank_);
        if (size_t bytes = s.within(p.begin, p.bytes))
          std::memcpy(to + s.to + p.begin, buffers[size_t(from)] + size_t(rank_) * p.bytes, bytes);
      }
      return;
    }
    bool joins =
        call_.kind == Call::all_gather || call_.kind == Call::split || call_.kind == Call::gather;
    if (joins || reduces_first_) {  // of each rank what it has, or has summed, for all
      for (int r = 0; r < ranks_; ++r) {
        Part s = joins ? Part{0, p.bytes} : slice(p, r);
        size_t first = joins ? size_t(r) * mine_bytes_ : 0;
        std::memcpy(to + first + p.begin + s.begin, buffers[size_t(r)] + s.begin, s.bytes);
      }
      return;
    }
    // The buffers are the tensors of a smaller call, of which this rank takes its own result alone.
    Call small = call_;
    small.numel = int64_t(p.bytes / size_);
    RankBuffers all{{buffers.begin(), buffers.end()}, std::vector<std::byte*>(buffers.size())};
    all.to[size_t(rank_)] = to + p.begin;
    move(small, all, 0, elements(small, ranks_));
  }

 private:
  struct Part {
    size_t begin, bytes;  // within a tensor of `mine`'s size
  };
  Part part(int64_t round) const {
    size_t begin = size_t(round) * round_bytes_;
    return {begin, std::min(round_bytes_, mine_bytes_ - begin)};
  }
  Part slice(Part p, int rank) const {
    size_t count = p.bytes / size_, n = size_t(ranks_), r = size_t(rank);
    size_t begin = count * r / n, end = count * (r + 1) / n;
    return {begin * size_, (end - begin) * size_};
  }
  Call call_;
  int rank_, ranks_;
  size_t size_, mine_bytes_, round_bytes_;
  int64_t rounds_;
  bool reduces_first_;
};

}  // namespace

size_t WindowControl::bytes(int ranks) {
  return header_bytes + size_t(ranks) * sizeof(Progress) + slots * sizeof(Work) +
         size_t(slots) * size_t(ranks) * sizeof(Announcement);
}
WindowControl::Progress* WindowControl::progress(int rank) {
  return reinterpret_cast<Progress*>(reinterpret_cast<std::byte*>(this) + header_bytes) + rank;
}
WindowControl::Work& WindowControl::work(int64_t number) {
  return reinterpret_cast<Work*>(progress(ranks))[number % slots];
}
WindowControl::Announcement& WindowControl::announcement(int64_t number, int rank) {
  auto* first = reinterpret_cast<Announcement*>(&work(0) + slots);
  return first[number % slots * ranks + rank];
}

WindowGroup::WindowGroup(std::shared_ptr<SharedMemory> memory, WindowControl* control, Group group)
    : memory_(std::move(memory)),
      control_(control),
      group_(std::move(group)),
      stage_(memory_->allocate(2 * stage_bytes)) {
  if (group_.rank == 0) control_->ranks = group_.size();
  if (stage_) control_->progress(group_.rank)->stage = memory_->find(stage_);
}

// Keeps the stage if a peer may still be taking from it.
WindowGroup::~WindowGroup() {
  if (stage_ && all_reached(&WindowControl::Progress::finished, calls_))
    memory_->deallocate(stage_, 2 * stage_bytes);
}

bool WindowGroup::all_reached(Counter counter, int64_t value) const {
  for (int r = 0; r < group_.size(); ++r)
    if ((control_->progress(r)->*counter).load(acquire) < value) return false;
  return true;
}

std::byte* WindowGroup::stage(int rank, int64_t round) const {
  return memory_->at(control_->progress(rank)->stage) + size_t(round % 2) * stage_bytes;
}

/// A collective that all announce and compare, and then do either in place, in pieces that anybody
/// can take, or round by round through the staging buffers.
class WindowOperation final : public QueuedOperation {
 public:
  WindowOperation(std::shared_ptr<OperationQueue> queue, Transfer t, WindowGroup& group)
      : QueuedOperation(std::move(queue), std::move(t)),
        g_(group),
        c_(*group.control_),
        mine_(*c_.progress(group.group_.rank)),
        number_(group.calls_++),
        staging_(call(), group.group_.rank, group.group_.size(), WindowGroup::stage_bytes) {}

  bool announce() override {
    // The slot is free when everybody is through with what it held.
    if (!g_.all_reached(&WindowControl::Progress::finished, number_ - c_.slots + 1)) return false;
    auto& a = c_.announcement(number_, rank());
    a.call = PackedCall::of(call());
    a.from = find(transfer().from);
    a.to = find(transfer().to);
    a.direct = in_window(transfer().from) && in_window(transfer().to);
    next(rank()).store(0, std::memory_order_relaxed);
    if (rank() == 0) c_.work(number_).done.store(0, std::memory_order_relaxed);
    mine_.announced.store(number_ + 1, publish);
    return true;
  }

  bool step() override {
    if (way_ == unknown) {
      // Bytes from outside shared memory must be staged whatever the others bring: do it now, so
      // that announcing and staging cost one wait.
      if (!c_.announcement(number_, rank()).direct) put();
      if (!g_.all_reached(&WindowControl::Progress::announced, number_ + 1)) return false;
      compare();
      choose();
    }
    if (!(way_ == direct ? step_direct() : step_staged())) return false;
    g_.rounds_ += way_ == staged ? staging_.rounds() : 0;
    mine_.finished.store(number_ + 1, publish);
    return true;
  }

  std::vector<int> missing() const override {
    std::vector<int> ranks;
    for (int r = 0; r < g_.group_.size(); ++r)
      if (c_.progress(r)->announced.load(acquire) <= number_) ranks.push_back(r);
    return ranks;
  }

 private:
  enum Way { unknown, direct, staged };

  int rank() const { return g_.group_.rank; }
  bool in_window(const Tensor& x) const {
    return !x.defined() || x.numel() == 0 || find(x).segment >= 0;
  }
  SharedMemory::Address find(const Tensor& x) const {
    return x.defined() && x.numel() ? g_.memory_->find(x.data()) : SharedMemory::Address{};
  }

  void compare() const {
    for (int r = 0; r < g_.group_.size(); ++r) {
      Call other = c_.announcement(number_, r).call.call();
      if (!other.matches(call()))
        throw disagreement(g_.group_, number_ + 1, {rank(), call()}, {r, other});
    }
  }

  void choose() {
    int n = g_.group_.size();
    way_ = direct;
    buffers_.from.resize(size_t(n));
    buffers_.to.resize(size_t(n));
    for (int r = 0; r < n; ++r) {
      const auto& a = c_.announcement(number_, r);
      if (!a.direct) way_ = staged;
      if (a.from.segment >= 0) buffers_.from[size_t(r)] = g_.memory_->at(a.from);
      if (a.to.segment >= 0) buffers_.to[size_t(r)] = g_.memory_->at(a.to);
    }
    elements_ = elements(call(), n);
    piece_ = std::max<int64_t>(1, piece_bytes / int64_t(size_of(call().dtype)));
    pieces_ = (elements_ + piece_ - 1) / piece_;
  }

  bool step_direct() {
    auto& done = c_.work(number_).done;
    if (!std::exchange(helped_, true)) {
      ProfileRange range("move", Activity::communication);
      in_team(pieces_ >= 16 ? threads_here() : 1, [&](int) { take_pieces(); });
    }
    return done.load(acquire) == pieces_;
  }

  std::atomic<int64_t>& next(int owner) { return c_.progress(owner)->next[number_ % c_.slots]; }

  /// Takes this rank's pieces, then those that others have not come to.
  void take_pieces() {
    int n = g_.group_.size();
    for (int i = 0; i < n; ++i) {
      int owner = (rank() + i) % n;
      int64_t first = pieces_ * owner / n, last = pieces_ * (owner + 1) / n;
      auto& taken = next(owner);
      for (int64_t p; (p = first + taken.fetch_add(1, std::memory_order_relaxed)) < last;) {
        move(call(), buffers_, p * piece_, std::min(elements_, (p + 1) * piece_));
        c_.work(number_).done.fetch_add(1, std::memory_order_acq_rel);
      }
    }
  }

  int64_t round() const { return g_.rounds_ + round_; }

  /// Puts this rank's part of the round into its staging buffer, once nobody reads the old one.
  void put() {
    if (put_ || round_ == staging_.rounds()) return;
    if (!g_.all_reached(&WindowControl::Progress::taken, round() - 1)) return;
    if (from()) {
      ProfileRange range("move", Activity::communication);
      staging_.put(round_, from(), g_.stage(rank(), round()));
    }
    mine_.staged.store(round() + 1, publish);
    put_ = true;
  }

  bool step_staged() {
    for (; round_ < staging_.rounds(); ++round_, put_ = reduced_ = false) {
      put();
      if (!put_ || !g_.all_reached(&WindowControl::Progress::staged, round() + 1)) return false;
      std::vector<std::byte*> stages;
      for (int r = 0; r < g_.group_.size(); ++r) stages.push_back(g_.stage(r, round()));
      if (staging_.reduces_first()) {
        if (!std::exchange(reduced_, true)) {
          ProfileRange range("move", Activity::communication);
          staging_.reduce_slice(round_, stages);
        }
        mine_.reduced.store(round() + 1, publish);
        if (!g_.all_reached(&WindowControl::Progress::reduced, round() + 1)) return false;
      }
      if (to()) {
        ProfileRange range("move", Activity::communication);
        staging_.take(round_, stages, to());
      }
      mine_.taken.store(round() + 1, publish);
    }
    return true;
  }

  WindowGroup& g_;
  WindowControl& c_;
  WindowControl::Progress& mine_;
  const int64_t number_;
  Staging staging_;
  Way way_ = unknown;
  RankBuffers buffers_;
  int64_t elements_ = 0, piece_ = 1, pieces_ = 0;
  int64_t round_ = 0;
  bool put_ = false, reduced_ = false, helped_ = false;
};

std::shared_ptr<QueuedOperation> WindowGroup::operation(std::shared_ptr<OperationQueue> queue,
                                                        Transfer t) {
  return std::make_shared<WindowOperation>(std::move(queue), std::move(t), *this);
}

}  // namespace triax::parallel
