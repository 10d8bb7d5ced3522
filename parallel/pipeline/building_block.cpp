#include "triax/parallel/pipeline/building_block.h"

#include <algorithm>

namespace triax::parallel {
namespace {

constexpr int interval = BuildingBlock::interval, passes = BuildingBlock::passes;

/// Forwards go down and up the V, backwards too: the chunk of a pass, and whether it goes down.
constexpr int chunk_of(int pass) { return pass == 1 || pass == 2 ? 1 : 0; }
constexpr bool goes_down(int pass) { return pass % 2 == 0; }

/// Places the passes of a block one after the other, each as early as its stage has room in the
/// interval. At turn i, between pass i and i + 1, it waits `holes[i]` slots.
class Placer {
 public:
  Placer(BuildingBlock& block, int stages) : block_(block), taken_(size_t(stages)) {
    block_.begins.assign(size_t(stages), {});
  }

  /// Returns false if a stage has no room.
  bool place(const BuildingBlock::Slots& steps, const BuildingBlock::Slots& holes) {
    int at = 0;
    for (int pass = 0; pass < passes; ++pass) {
      at += holes[size_t(pass)];
      for (int n = 0; n < block_.stages(); ++n) {
        int stage = goes_down(pass) ? n : block_.stages() - 1 - n, begin = at;
        while (begin < at + interval && !is_free(stage, begin, block_.takes(pass))) ++begin;
        if (begin == at + interval) return false;
        for (int i = 0; i < block_.takes(pass); ++i)
          taken_[size_t(stage)][size_t((begin + i) % interval)] = true;
        block_.begins[size_t(stage)][size_t(pass)] = begin;
        bool turns = n + 1 == block_.stages();
        at = begin + (turns ? block_.takes(pass) : steps[size_t(pass)]);
      }
    }
    return true;
  }

 private:
  bool is_free(int stage, int begin, int slots) const {
    for (int i = 0; i < slots; ++i)
      if (taken_[size_t(stage)][size_t((begin + i) % interval)]) return false;
    return true;
  }

  BuildingBlock& block_;
  std::vector<std::array<bool, interval>> taken_;
};

/// A block, once for each micro-batch, on a grid of slots. Weights take slots that are free.
class Grid {
 public:
  Grid(const BuildingBlock& block, int micros, int live)
      : block_(block), micros_(micros), live_(live), stages_(block.begins.size()) {
    int longest = 0;
    for (const auto& slots : block.begins) longest = std::max(longest, std::ranges::max(slots));
    slots_ = longest + interval * micros;
    for (int s = 0; s < block_.stages(); ++s) {
      Stage& stage = stages_[size_t(s)];
      stage.slots.assign(size_t(slots_) + 1, {});
      for (int pass = 0; pass < passes; ++pass)
        for (int m = 0; m < micros_; ++m) put(s, {pass, m}, due(s, pass, m));
      settle(stage, 0, slots_);
    }
  }

  /// Moves passes to earlier slots, in the order in which the block has them: those before the
  /// first micro-batch is back, and those after the last has begun.
  void squeeze() {
    int back = due(0, passes - 1, 0);
    for (int slot = 0; slot < slots_; ++slot) {
      if (slot == back && splits()) slot = std::max(slot, last_begun_);
      for (int s = 0; s < block_.stages(); ++s)
        for (int pass = 0; pass < passes; ++pass) {
          int after = slot - due(s, pass, 0), micro = after / interval;
          if (after >= 0 && after % interval == 0 && micro < micros_) advance(s, {pass, micro});
        }
    }
  }

  std::vector<Actions> lists() const {
    std::vector<Actions> all;
    for (const Stage& stage : stages_) {
      Actions &list = all.emplace_back(), owed;
      for (const Slot& slot : stage.slots) {
        auto [pass, micro] = slot.now;
        if (pass >= 0) list.push_back({kind_of(pass), chunk_of(pass), micro});
        if (pass >= 2 && splits()) owed.push_back({Action::backward_weight, chunk_of(pass), micro});
        if (pass != none || owed.empty()) continue;
        auto next = std::ranges::max_element(owed, {}, &Action::chunk);
        list.push_back(*next);
        owed.erase(next);
      }
      list.insert(list.end(), owed.begin(), owed.end());
    }
    return all;
  }

 private:
  static constexpr int none = -1, goes_on = -2;  ///< the second slot of a whole backward
  struct Pass {
    int pass = none, micro = 0;
  };
  struct Slot {
    Pass now;
    int held = 0, owed = 0;  ///< before it: activations, and weights of them
  };
  struct Stage {
    std::vector<Slot> slots;
    std::array<std::vector<int>, passes> begins;  ///< by micro-batch
  };

  bool splits() const { return block_.backward != Action::backward; }
  Action::Kind kind_of(int pass) const { return pass < 2 ? Action::forward : block_.backward; }
  /// Returns the slot in which the block has a pass.
  int due(int s, int pass, int micro) const {
    return block_.begins[size_t(s)][size_t(pass)] + interval * micro;
  }

  void put(int s, Pass p, int at) {
    Stage& stage = stages_[size_t(s)];
    auto& begins = stage.begins[size_t(p.pass)];
    if (begins.empty()) begins.resize(size_t(micros_));
    begins[size_t(p.micro)] = at;
    for (int i = 0; i < block_.takes(p.pass); ++i)
      stage.slots[size_t(at + i)].now = {i == 0 ? p.pass : goes_on, p.micro};
  }

  /// Returns the slot after one in which a stage does `now`.
  Slot after(const Slot& slot, int now) const {
    Slot next{{}, slot.held, slot.owed};
    if (now == 0 || now == 1) ++next.held;
    if (now >= 2 && splits()) ++next.owed;
    if (now >= 2 && !splits()) --next.held;
    if (now == none && next.owed > 0) --next.owed, --next.held;
    return next;
  }

  /// Counts what a stage holds from a slot on, after changes in front of `changed`.
  void settle(Stage& stage, int from, int changed) {
    for (size_t i = size_t(from); i + 1 < stage.slots.size(); ++i) {
      Slot next = after(stage.slots[i], stage.slots[i].now.pass), &known = stage.slots[i + 1];
      if (int(i) >= changed && known.held == next.held && known.owed == next.owed) return;
      known.held = next.held, known.owed = next.owed;
    }
  }

  /// Returns the first slot in which a pass has what it needs.
  int ready(int s, Pass p) const {
    auto ends = [&](int stage, int pass) {
      return stages_[size_t(stage)].begins[size_t(pass)][size_t(p.micro)] + block_.takes(pass);
    };
    int from = s + (goes_down(p.pass) ? -1 : 1), at = p.pass > 0 ? ends(s, p.pass - 1) : 0;
    if (from >= 0 && from < block_.stages()) at = std::max(at, ends(from, p.pass));
    const auto& begins = stages_[size_t(s)].begins[size_t(p.pass)];
    return p.micro > 0 ? std::max(at, begins[size_t(p.micro) - 1] + block_.takes(p.pass)) : at;
  }

  /// True if a stage may do a pass in slot `to` instead of `from`, and hold no more than it may.
  bool fits(const Stage& stage, Pass p, int to, int from) const {
    for (int i = 0; i < block_.takes(p.pass); ++i)
      if (to + i < from && stage.slots[size_t(to + i)].now.pass != none) return false;
    Slot next = after(stage.slots[size_t(to)], p.pass);
    for (int slot = to + block_.takes(p.pass); slot <= from; ++slot) {
      if (next.held > live_) return false;
      next = after(next, slot == from ? none : stage.slots[size_t(slot)].now.pass);
    }
    return true;
  }

  /// Moves a pass to the earliest slot that it may have.
  void advance(int s, Pass p) {
    Stage& stage = stages_[size_t(s)];
    int from = due(s, p.pass, p.micro);
    for (int to = ready(s, p); to < from; ++to) {
      if (!fits(stage, p, to, from)) continue;
      for (int i = 0; i < block_.takes(p.pass); ++i) stage.slots[size_t(from + i)].now = {};
      put(s, p, to);
      settle(stage, to, from + block_.takes(p.pass));
      return;
    }
  }

  const BuildingBlock& block_;
  int micros_, live_, slots_ = 0;
  int last_begun_ = due(0, 0, micros_ - 1);  ///< slot of the last micro-batch's first forward
  std::vector<Stage> stages_;
};

}  // namespace

BuildingBlock make_block(int stages, const BuildingBlock::Slots& steps,
                         const BuildingBlock::Slots& holes, Action::Kind backward) {
  BuildingBlock block{{}, backward};
  if (!Placer(block, stages).place(steps, holes)) block.begins.clear();
  return block;
}

std::vector<Actions> repeat(const BuildingBlock& block, int micros, int live) {
  Grid grid(block, micros, live);
  grid.squeeze();
  return grid.lists();
}

}  // namespace triax::parallel
