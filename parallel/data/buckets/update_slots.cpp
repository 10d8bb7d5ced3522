#include "triax/parallel/data/buckets/update_slots.h"

#include <algorithm>

#include "triax/optim/prepare.h"
#include "triax/parallel/data/buckets/cut_matrix.h"

namespace triax::parallel {

// The padding behind a parameter is in its slot.
void UpdateSlots::cut(Bucket& b) {
  int64_t end = b.my_weight.numel();
  auto before = places_.size();
  for (auto& piece : b.layout.pieces) {
    Range r = b.mine(piece);
    optim::Rates rates{piece.parameter->lr, piece.parameter->weight_decay};
    bool first = places_.size() == before;
    if (r.begin == r.end || (!first && places_.back().rates == rates)) continue;
    if (!first) places_.back().range.end = r.begin;
    places_.push_back({&b, {first ? 0 : r.begin, end}, rates});
  }
  if (places_.size() == before) places_.push_back({&b, {0, end}, {}});
}

Tensors UpdateSlots::weights() const {
  return transformed(places_, [](auto& p) {
    return p.bucket->my_weight.narrow(0, p.range.begin, p.range.end - p.range.begin);
  });
}

std::vector<optim::Slot> UpdateSlots::slots(const HeldModel& model) const {
  auto decays = [](const nn::Parameter& p) { return p.weight_decay || p.decay; };
  std::vector<optim::Slot> slots;
  for (auto& [b, range, rates] : places_) {
    if (b->layout.frozen()) break;  // so are all that follow
    auto part = [&, &range = range](const Tensor& x) {
      return x.defined() ? x.narrow(0, range.begin, range.end - range.begin) : x;
    };
    auto decayed = optim::within(b->mine(decays), range.begin, range.end);
    slots.push_back({.weight = part(b->my_weight),
                     .grad = part(b->my_grad),
                     .decayed = std::move(decayed),
                     .rates = rates,
                     .state = b->layout.to});
  }
  add_matrices(model, slots);
  return slots;
}

/// Gives each slot the matrices that lie in it. A matrix of which a bucket's slice has nothing is
/// in the slot that is next by then: ranks that gather matrices meet in the same order.
void UpdateSlots::add_matrices(const HeldModel& model, std::vector<optim::Slot>& slots) const {
  for (size_t i = 0; i < slots.size();) {
    const Bucket& b = *places_[i].bucket;
    size_t end = i;
    while (end < slots.size() && places_[end].bucket == &b) ++end;
    for (auto& piece : b.layout.pieces)
      for (auto& m : matrices_of(model, b, piece)) {
        while (i + 1 < end && m.range.begin >= places_[i].range.end) ++i;
        const Range& slot = places_[i].range;
        m.range = {std::max(m.range.begin - slot.begin, int64_t(0)),
                   std::max(m.range.end - slot.begin, int64_t(0))};
        slots[i].matrices.push_back(std::move(m));
      }
    i = end;
  }
}

std::vector<FlatPiece> UpdateSlots::pieces(size_t i) const {
  std::vector<FlatPiece> all;
  auto& [b, range, rates] = places_[i];
  for (auto& piece : b->layout.pieces) {
    Range r = b->mine(piece);
    int64_t begin = std::max(r.begin, range.begin), end = std::min(r.end, range.end);
    if (begin < end)
      all.push_back(
          {piece.parameter, begin - range.begin, end - begin, begin + b->my_first - piece.begin});
  }
  return all;
}

}  // namespace triax::parallel
