#include <algorithm>
#include <iterator>

#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {
namespace {

/// A tensor laid out as optimizer slot `slot` from element `begin` on, and its kind in names of
/// pieces.
struct Flat {
  size_t slot;
  Tensor value;
  std::string kind;
  int64_t begin = 0;
};

/// Adds the elements that it holds, parameter by parameter, without padding.
void add_pieces(std::vector<Piece>& all, const DataParallel& data, const Flat& flat, Holder whose) {
  for (const FlatPiece& at : data.slot_pieces(flat.slot)) {
    const nn::Parameter& p = *at.parameter;
    // Both overlap in [from, to) of the slot; in the parameter's slice that is `shift` further on.
    int64_t from = std::max(at.begin, flat.begin), shift = at.first - at.begin;
    int64_t to = std::min(at.begin + at.length, flat.begin + flat.value.numel());
    int64_t slice = p.slice().numel(), first = from + shift, end = std::min(to + shift, slice);
    if (first >= end || (whose == Holder::owner && !data.owns(p))) continue;
    Part part = part_of(p);
    if (end - first < slice) {
      part.flat_end = part.flat_begin + end;
      part.flat_begin += first;
    }
    Tensor held = flat.value.narrow(0, from - flat.begin, end - first);
    all.push_back({p.name, flat.kind, part, held.view(held_shape(part))});
  }
}

}  // namespace

Part part_of(const nn::Parameter& p) {
  Part part{.full = p.full};
  if (p.shard.length >= 0) {
    part.dim = p.shard.dim;
    part.begin = p.shard.begin;
    part.length = p.shard.length;
  }
  if (p.shard.count >= 0) {  // of dim 0, the outermost: a range of the slice's elements
    int64_t held = p.slice().numel(), each = held / p.shard.count;
    part.flat_begin = p.shard.first * each, part.flat_end = part.flat_begin + held;
  }
  return part;
}

std::vector<Piece> weight_pieces(const DataParallel& data, Holder whose) {
  std::vector<Piece> all;
  auto weights = data.weights();
  for (size_t i = 0; i < weights.size(); ++i) add_pieces(all, data, {i, weights[i], ""}, whose);
  return all;
}

std::vector<Piece> Replica::pieces(Holder whose) const {
  auto all = weight_pieces(data_, whose);
  std::ranges::move(buffers_.pieces(whose), std::back_inserter(all));
  return all;
}

bool has_state(const Checkpoint& checkpoint, const std::string& name) {
  std::string prefix = logical_name(name, "m");
  prefix.pop_back();  // state of any kind
  auto first = checkpoint.tensors().lower_bound(prefix);
  return first != checkpoint.tensors().end() && first->first.starts_with(prefix);
}

void Replica::load(Checkpoint& checkpoint, Weights which, std::optional<DType> saved) {
  auto wanted = pieces(Holder::any);
  bool average = which == Weights::average;
  DType own = options_.dtype, dtype = saved.value_or(own);
  if (!average && dtype == own) return checkpoint.load(wanted, Unclaimed::ignore);
  auto weights = weight_pieces(data_, Holder::any);
  for (size_t i = 0; i < weights.size(); ++i) {  // pieces() has them first
    const Piece& w = weights[i];
    bool averaged = average && has_state(checkpoint, w.name);
    if (averaged) wanted[i].kind = "average";
    wanted[i].value = empty(w.value.shape(), averaged ? accumulator(own) : dtype, w.value.device());
  }
  checkpoint.load(wanted, Unclaimed::ignore);
  for (size_t i = 0; i < weights.size(); ++i) copy_(weights[i].value, wanted[i].value);
}

std::vector<Piece> state_pieces(const DataParallel& data, const optim::Optimizer& optimizer,
                                Holder whose) {
  std::vector<Piece> all;
  for (auto& state : optimizer.state())
    add_pieces(all, data, {state.slot, state.value, state.kind, state.begin}, whose);
  return all;
}

std::vector<Piece> read_pieces(const Replica& replica) {
  std::vector<Piece> all;
  for (auto* p : replica.parameters()) {
    if (!p->value.defined()) continue;
    Tensor slice = p->value.detach();
    if (p->shard.padding > 0) slice = slice.narrow(0, 0, p->slice()[0]);
    Part part = part_of(*p);
    all.push_back({p->name, "", part, slice.view(held_shape(part))});
  }
  return all;
}

std::vector<Piece> gradient_pieces(const DataParallel& data) {
  std::vector<Piece> all;
  auto slots = data.slots();
  for (size_t i = 0; i < slots.size(); ++i)
    add_pieces(all, data, {i, slots[i].grad, "gradient"}, Holder::any);
  return all;
}

std::string name_of(const Piece& piece) {
  return piece.kind.empty() ? piece.name : piece.name + "/" + piece.kind;
}

}  // namespace triax::parallel
