#include "triax/parallel/data/buckets/update_slots.h"

#include <algorithm>

#include "triax/optim/prepare.h"

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

namespace {

/// Appends the matrices in a piece: one, or each of a stack.
void add_matrices(const FlatPiece& piece, std::vector<optim::Matrix>& to) {
  const nn::Parameter& p = *piece.parameter;
  int64_t held = p.local().numel(), all = p.full.numel(), rows = p.full[0];
  if (p.stacked) held /= p.local()[0], all /= p.full[0], rows = p.full[1];
  int64_t end = piece.first + piece.length;
  for (int64_t first = piece.first / held * held; first < end; first += held) {
    int64_t from = std::max(first, piece.first), until = std::min(first + held, end);
    int64_t at = piece.begin - piece.first;
    to.push_back({p.name, {at + from, at + until}, rows, all / rows});
  }
}

}  // namespace

std::vector<optim::Slot> UpdateSlots::slots() const {
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
    for (auto& piece : pieces(slots.size() - 1)) {
      const nn::Parameter& p = *piece.parameter;
      if (p.full.rank() >= 2 && p.decay && !p.table) add_matrices(piece, slots.back().matrices);
    }
  }
  return slots;
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
