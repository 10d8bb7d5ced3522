#include "triax/parallel/data/buckets/cut_matrix.h"

#include <algorithm>

#include "triax/autograd/ops.h"

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

}  // namespace

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

}  // namespace triax::parallel
