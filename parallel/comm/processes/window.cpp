#include "parallel/comm/processes/window.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "core/profile.h"
#include "parallel/comm/movement.h"
#include "parallel/comm/processes/staging.h"

namespace triax::parallel {
namespace {

constexpr auto read = std::memory_order_acquire;
constexpr auto publish = std::memory_order_release;

constexpr size_t header_bytes = 64;

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
    if ((control_->progress(r)->*counter).load(read) < value) return false;
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
      if (c_.progress(r)->announced.load(read) <= number_) ranks.push_back(r);
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
      if (pieces_ >= 16 && omp_get_max_threads() > 1) {
#pragma omp parallel
        take_pieces();
      } else {
        take_pieces();
      }
    }
    return done.load(read) == pieces_;
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
