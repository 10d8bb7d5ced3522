#include "triax/parallel/data/buckets/update_slots.h"

#include <algorithm>

#include "triax/autograd/ops.h"
#include "triax/optim/prepare.h"

namespace triax::parallel {
namespace {

/// The place of a rank's elements of a matrix, and the ranks that hold the others.
struct CutMatrix {
  int64_t rows, columns;             ///< of the whole
  int dim = 0;                       ///< tensor parallelism cuts it
  Range slice;                       ///< of `dim`
  Range mine;                        ///< of the slice's elements, row-major: what ZeRO leaves
  Communicator* replicas = nullptr;  ///< hold the rest of the slice; null: it is whole
  std::vector<Communicator*> features = {};  ///< hold the other slices

  Shape local() const {
    int64_t length = slice.end - slice.begin;
    return dim == 0 ? Shape{length, columns} : Shape{rows, length};
  }
  /// Sums what is zero but for each rank's own part, which is exact.
  Tensor gather(const Tensor& part) const {
    Tensor held = zeros(local(), part.dtype(), part.device());
    copy_(held.view({-1}).narrow(0, mine.begin, mine.end - mine.begin), part);
    if (replicas) replicas->all_reduce(held).wait();
    if (features.empty()) return held;
    Tensor whole = zeros({rows, columns}, part.dtype(), part.device());
    copy_(whole.narrow(dim, slice.begin, slice.end - slice.begin), held);
    for (Communicator* ranks : features) ranks->all_reduce(whole).wait();
    return whole;
  }
  Tensor part(const Tensor& whole) const {
    Tensor held = whole.narrow(dim, slice.begin, slice.end - slice.begin).contiguous();
    return held.view({-1}).narrow(0, mine.begin, mine.end - mine.begin);
  }
};

/// Returns the matrix of a parameter, or one of its stack, as tensor parallelism leaves it.
CutMatrix slice_of(const HeldModel& model, const nn::Parameter& p) {
  int64_t rows = p.full[p.stacked], columns = p.full.numel() / rows / (p.stacked ? p.full[0] : 1);
  CutMatrix m{.rows = rows, .columns = columns, .slice = {0, rows}};
  int dim = p.shard.dim - int(p.stacked);
  if (p.shard.length < 0 || dim < 0) return m;
  int64_t each = dim == 0 ? 1 : columns / p.full[p.shard.dim];  // elements of a column's index
  m.dim = std::min(dim, 1);
  m.slice = {p.shard.begin * each, (p.shard.begin + p.shard.length) * each};
  for (auto& axis : model.features)
    if (p.shard.is(axis.name, nn::Along::slice)) m.features.push_back(axis.ranks);
  return m;
}

/// Returns the matrices of a piece's parameter, one or each of a stack, with their ranges in this
/// rank's slice of the bucket. Where ranks hold parts, all of them have all matrices in the same
/// order, be their ranges empty, and a matrix knows how to gather itself.
std::vector<optim::Matrix> matrices_of(const HeldModel& model, const Bucket& bucket,
                                       const FlatPiece& piece) {
  const nn::Parameter& p = *piece.parameter;
  if (p.full.rank() < 2 || !p.decay || p.table) return {};
  CutMatrix of = slice_of(model, p);
  if (model.cuts(false) && bucket.over->size() > 1) of.replicas = bucket.over;
  Range held = bucket.mine(piece);
  int64_t elements = of.local().numel(), first = held.begin + bucket.my_first - piece.begin;
  std::vector<optim::Matrix> all;
  for (int64_t at = 0; at < p.local().numel(); at += elements) {
    auto inside = [&](int64_t i) { return std::clamp(i - at, int64_t(0), elements); };
    of.mine = {inside(first), inside(first + held.end - held.begin)};
    int64_t begin = std::clamp(at + of.mine.begin - first + held.begin, held.begin, held.end);
    optim::Matrix m{p.name, {begin, begin + of.mine.end - of.mine.begin}, of.rows, of.columns};
    if (of.replicas || !of.features.empty()) {
      m.gather = [of](const Tensor& part) { return of.gather(part); };
      m.part = [of](const Tensor& whole) { return of.part(whole); };
    }
    all.push_back(std::move(m));
  }
  return all;
}

}  // namespace

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
