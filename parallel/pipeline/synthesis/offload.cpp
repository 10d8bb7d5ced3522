#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "triax/parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel {
namespace {

/// When to copy, in seconds: a reload begins `lead` before its backward, and what was made `age`
/// ago goes first, since its copy has ended.
struct Rules {
  double lead, age;
};

/// Holds the memory that one activation counts for, before and after its backward_input.
struct Sizes {
  double whole, half;
};

/// Adds offloads and reloads to the list of one stage. Times are those of the list without them.
class StageOffloader {
 public:
  StageOffloader(std::span<const TimedAction> passes, double cap, Sizes sizes, Rules rules)
      : passes_(passes), cap_(cap + 1e-9), sizes_(sizes), rules_(rules) {
    for (size_t i = 0; i < passes_.size(); ++i) {
      const Action& a = passes_[i].action;
      if (a.kind != Action::forward)
        (a.kind == Action::backward_weight ? weight_ : backward_)[{a.chunk, a.micro}] = i;
    }
  }

  /// Returns an empty list if there is too little room.
  Actions run() {
    for (now_ = 0; now_ < passes_.size(); ++now_) {
      const Action& a = passes_[now_].action;
      if (a.kind == Action::backward_weight) {
        if (owed_.contains(now_)) take_weight(now_);  // else it was early
        continue;
      }
      bool forward = a.kind == Action::forward, splits = a.kind == Action::backward_input;
      double more = forward ? sizes_.whole : splits ? sizes_.half - sizes_.whole : -sizes_.whole;
      if (!fetch(std::max(0., more))) return {};
      if (forward) here_[backward_.at({a.chunk, a.micro})] = now_;
      else here_.erase(now_);
      if (splits) owed_.insert(weight_.at({a.chunk, a.micro}));
      held_ += more;
      list_.push_back(a);
    }
    return std::move(list_);
  }

 private:
  using Key = std::pair<int, int>;  // chunk, micro-batch

  double until(size_t position) const { return passes_[position].begin - passes_[now_].begin; }

  void add(Action::Kind kind, size_t backward) {
    const Action& a = passes_[backward].action;
    list_.push_back({kind, a.chunk, a.micro});
    held_ += kind == Action::reload ? sizes_.whole : -sizes_.whole;
  }

  void take_weight(size_t position) {
    list_.push_back(passes_[position].action);
    owed_.erase(position);
    held_ -= sizes_.half;
  }

  /// Brings back what is needed now or soon, and makes room for what the pass adds.
  bool fetch(double more) {
    while (!away_.empty()) {
      size_t next = *away_.begin();
      if (next != now_ && until(next) > rules_.lead) break;
      if (!make_room(sizes_.whole + more, next)) {
        if (next == now_) return false;
        break;
      }
      add(Action::reload, next);
      away_.erase(next);
    }
    return make_room(more, now_);
  }

  /// Offloads what has its backward after position `last`, the furthest first, until there is room.
  /// If that is not enough, weights that wait are done.
  bool make_room(double more, size_t last) {
    while (held_ + more > cap_) {
      auto furthest = here_.rend();
      for (auto each = here_.rbegin(); each != here_.rend() && each->first > last; ++each) {
        bool old = -until(each->second) >= rules_.age;
        if (furthest == here_.rend() || old) furthest = each;
        if (old) break;
      }
      if (furthest != here_.rend()) {
        size_t backward = furthest->first;
        add(Action::offload, backward);
        away_.insert(backward);
        here_.erase(backward);
      } else if (!owed_.empty() && sizes_.half > 0) {
        take_weight(*owed_.begin());
      } else {
        return false;
      }
    }
    return true;
  }

  std::span<const TimedAction> passes_;
  double cap_, held_ = 0;
  Sizes sizes_;
  Rules rules_;
  std::map<Key, size_t> backward_, weight_;  // positions, as all below
  std::map<size_t, size_t> here_;            // not offloaded yet: forwards by their backwards
  std::set<size_t> away_, owed_;             // backwards; weights
  size_t now_ = 0;
  Actions list_;
};

}  // namespace

bool offloads(const StageTimes& times) {
  return std::ranges::any_of(times, [](auto& t) { return t.copy > 0; });
}

std::vector<Actions> offloaded(const std::vector<Actions>& lists, const PipelineShape& shape,
                               const StageTimes& times, const Budget& budget) {
  Simulation passes = simulate(lists, shape, times);
  double copy = std::ranges::max(times, {}, &Durations::copy).copy, one = 1. / shape.chunks,
         least = 0;
  std::vector<Actions> best;
  for (double lead : {1., 1.5, 2., 3., 5.})
    for (double age : {0., 1., 2., 3.}) {
      std::vector<Actions> tried;
      auto begin = passes.actions.begin();
      for (double cap : budget.cap) {
        auto end = begin + std::ssize(lists[tried.size()]);
        tried.push_back(
            StageOffloader({begin, end}, cap, {one, budget.hold * one}, {lead * copy, age * copy})
                .run());
        begin = end;
      }
      if (std::ranges::count(tried, Actions{}) > 0) continue;
      double cost = cost_of(simulate(tried, shape, times), budget.objective);
      if (best.empty() || cost < least) best = std::move(tried), least = cost;
    }
  return best;
}

}  // namespace triax::parallel
