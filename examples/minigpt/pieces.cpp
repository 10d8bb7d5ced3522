#include "examples/minigpt/pieces.h"

#include <algorithm>

namespace triax::minigpt {
using parallel::Part;
using parallel::Piece;

Part part_of(const nn::Parameter& p) {
  Part part{.full = p.full};
  if (p.shard.length >= 0) {
    part.dim = p.shard.dim;
    part.begin = p.shard.begin;
    part.length = p.shard.length;
  }
  return part;
}

void add_pieces(std::vector<Piece>& all, const parallel::DataParallel& data, const Flat& flat,
                Holder whose) {
  for (const parallel::SlotPiece& at : data.slot_pieces(flat.slot)) {
    const nn::Parameter& p = *at.parameter;
    // What both have of the slot, from `from` to `to`; in the parameter's slice `shift` further on.
    int64_t from = std::max(at.begin, flat.begin), shift = at.first - at.begin;
    int64_t to = std::min(at.begin + at.length, flat.begin + flat.value.numel());
    int64_t slice = p.slice().numel(), first = from + shift, end = std::min(to + shift, slice);
    if (first >= end || (whose == Holder::owner && !data.owns(p))) continue;
    Part part = part_of(p);
    if (end - first < slice) part.flat_begin = first, part.flat_end = end;
    Tensor held = flat.value.narrow(0, from - flat.begin, end - first);
    all.push_back({p.name, flat.kind, part, held.view(held_shape(part))});
  }
}

std::vector<Piece> pieces(const parallel::DataParallel& data, const optim::AdamW& adam,
                          Holder whose) {
  std::vector<Piece> all;
  auto slots = data.slots();
  for (size_t i = 0; i < slots.size(); ++i) add_pieces(all, data, {i, slots[i].weight, ""}, whose);
  for (auto& state : adam.state())
    add_pieces(all, data, {state.slot, state.value, state.kind, state.begin}, whose);
  return all;
}

std::vector<Piece> gradient_pieces(const parallel::DataParallel& data) {
  std::vector<Piece> all;
  auto slots = data.slots();
  for (size_t i = 0; i < slots.size(); ++i)
    add_pieces(all, data, {i, slots[i].grad, "gradient"}, Holder::any);
  return all;
}

}  // namespace triax::minigpt
