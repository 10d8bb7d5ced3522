#include "triax/parallel/context/forms.h"

namespace triax::parallel {
namespace {

/// Calls f(part of `by_rank`, part of `by_position`) for each span of each rank.
template <class F>
void each_span(const ContextRows& r, const Tensor& by_rank, const Tensor& by_position, F f) {
  for (int rank = 0; rank < r.cp.size(); ++rank) {
    int64_t at = 0;
    for (const nn::Span& s : r.spans(rank)) {
      f(by_rank.narrow(0, rank, 1).narrow(2, at, s.count), by_position.narrow(2, s.first, s.count));
      at += s.count;
    }
  }
}

}  // namespace

Tensor ContextRows::by_position(const Tensor& x, int64_t lead) const {
  int64_t width = x.numel() / (lead * all());
  Tensor y = empty({1, lead, all(), width}, x.dtype(), x.device());
  each_span(*this, x.view({cp.size(), lead, rows(), width}), y,
            [](const Tensor& of_rank, const Tensor& here) { copy_(here, of_rank); });
  return y.view({lead, all(), width});
}

Tensor ContextRows::by_rank(const Tensor& x, int64_t lead) const {
  int64_t width = x.numel() / (lead * all());
  Tensor y = cp.empty({cp.size(), lead, rows(), width}, x.dtype());
  each_span(*this, y, x.view({1, lead, all(), width}),
            [](const Tensor& of_rank, const Tensor& here) { copy_(of_rank, here); });
  return y;
}

Tensor ContextRows::keys_values(const Qkv& in) const {
  Tensor both = cp.empty({2, in.k.size(0), in.k.size(1), 1, in.k.size(3)}, in.k.dtype());
  copy_(half_of(both, 0), in.k.detach());
  copy_(half_of(both, 1), in.v.detach());
  return both;
}

Attention ContextRows::attention(const Qkv& in, int64_t sample, nn::Span queries,
                                 nn::Span keys) const {
  Band band = Band::all(queries.count, keys.count);
  int64_t ahead = queries.first - keys.first;
  if (shape.causal) band.high = ahead;
  if (shape.window > 0) band.low = ahead - shape.window + 1;
  random::Mask here = mask;
  here.row += sample * all() + queries.first;
  here.column += keys.first;
  return {in, queries.count, band, here, all()};
}

Tensor half_of(const Tensor& both, int64_t which) {
  return both.narrow(0, which, 1).view({both.size(1), both.size(2), both.size(3), both.size(4)});
}

Tensor rows_of(const Tensor& x, int64_t samples, int64_t i, nn::Span rows) {
  return x.narrow(0, i * (x.size(0) / samples) + rows.first, rows.count);
}

}  // namespace triax::parallel
