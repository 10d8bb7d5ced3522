#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/parallel/context/forms.h"

// Keys and values of all ranks in the order of positions: each query's softmax is one kernel's,
// over the keys that one rank would have, in that order. Their gradients are summed to where they
// are.
namespace triax::parallel {
namespace {

/// Keys and values of all rows, or their gradients: [2][samples][all rows][width].
struct KeysValues {
  Tensor both;
  Shape row;  // [kv_heads, 1, head_dim]
  int64_t samples, all;

  /// Returns keys (0) or values (1) [0, count) of a sample.
  Tensor of(int64_t which, int64_t sample, int64_t count) const {
    Tensor x = both.view({2 * samples * all, row[0], 1, row[2]});
    return x.narrow(0, (which * samples + sample) * all, count);
  }
};

KeysValues gathered(const ContextRows& r, const Qkv& in) {
  Tensor mine = r.keys_values(in);
  Tensor by_rank = r.cp.empty({r.cp.size(), mine.numel()}, mine.dtype());
  r.cp.all_gather(mine, by_rank).wait();
  return {
      r.by_position(by_rank, 2 * r.samples), {in.k.size(1), 1, in.k.size(3)}, r.samples, r.all()};
}

/// Returns the spans of this rank's rows, in parts that are summed each by itself.
std::vector<nn::Span> spans_of(const ContextRows& r) {
  if (r.exact.parts == 0) return r.spans(r.cp.rank());
  check_input(r.rows() % r.exact.parts == 0, Exit::config,
              "bitwise with cp-form=gather: {} parts of {} rows of a sample; expected equal ones\n"
              "  Take sequences of a length that --row-parts divides.",
              r.exact.parts, r.rows());
  std::vector<nn::Span> parts;
  int64_t each = r.rows() / r.exact.parts;
  for (const nn::Span& s : r.spans(r.cp.rank()))
    for (int64_t at = 0; at < s.count; at += each) parts.push_back({s.first + at, each});
  return parts;
}

/// Calls f(sample, rows here, what a kernel is asked) for each of those parts of each sample's
/// queries, which see all keys from position 0 on.
template <class F>
void each_span(const ContextRows& r, const Tensor& q, const KeysValues& kv, F f) {
  for (int64_t i = 0; i < r.samples; ++i) {
    int64_t at = 0;
    for (const nn::Span& s : spans_of(r)) {
      int64_t keys = r.shape.causal ? s.first + s.count : r.all();
      nn::Span here{at, s.count};
      Qkv in{rows_of(q, r.samples, i, here), kv.of(0, i, keys), kv.of(1, i, keys)};
      f(i, here, r.attention(in, i, s, {0, keys}));
      at += s.count;
    }
  }
}

Tensors backward(const ContextRows& r, const Qkv& in, const Tensor& y, const Tensor& lse,
                 const Tensor& dy) {
  KeysValues kv = gathered(r, in), sums = kv;
  bool exact = r.exact.parts > 0;
  DType wide = exact ? f64 : accumulator(in.k.dtype());
  sums.both = zeros(kv.both.shape(), wide, kv.both.device());
  Tensor dq = empty(in.q.shape(), in.q.dtype(), in.q.device());
  each_span(r, in.q, kv, [&](int64_t i, nn::Span here, const Attention& a) {
    Qkv d{rows_of(dq, r.samples, i, here), empty_like(a.in.k), empty_like(a.in.v)};
    auto of = [&](const Tensor& x) { return rows_of(x, r.samples, i, here); };
    backend(dq).attention_backward(a, of(y), of(lse), of(dy), d);
    int64_t keys = a.band.keys;
    auto add = [&](const Tensor& part, const Tensor& to) {
      if (exact) backend(dq).accumulate_fixed(part, *r.exact.grid, to, Write::add);
      else backend(dq).accumulate(part, to);
    };
    add(d.k, sums.of(0, i, keys));
    add(d.v, sums.of(1, i, keys));
  });
  Tensor mine = r.cp.empty({2, in.k.size(0), in.k.size(1), 1, in.k.size(3)}, wide);
  r.cp.reduce_scatter(r.by_rank(sums.both, 2 * r.samples), mine).wait();
  return {dq, half_of(mine, 0).to(in.k.dtype()), half_of(mine, 1).to(in.k.dtype())};
}

}  // namespace

// Keys and values of all ranks are gathered again in backward: kept, they would be as large as on
// one rank.
Tensor gather_attention(const ContextRows& r, const Qkv& views) {
  Qkv in{views.q.detach().contiguous(), views.k.detach().contiguous(),
         views.v.detach().contiguous()};
  const Tensor& q = in.q;
  int64_t heads = q.size(1) * q.size(2);
  Tensor y = empty({q.size(0), heads * q.size(3)}, q.dtype(), q.device());
  Tensor lse = empty({q.size(0), heads}, accumulator(q.dtype()), q.device());
  each_span(r, q, gathered(r, in), [&](int64_t i, nn::Span here, const Attention& a) {
    backend(y).attention(a, rows_of(y, r.samples, i, here), rows_of(lse, r.samples, i, here));
  });
  return record("gather_attention", y, {views.q, views.k, views.v},
                [r, in, y = y.detach(), lse](const Tensor& dy) {
                  return backward(r, in, y, lse, dy.contiguous());
                });
}

}  // namespace triax::parallel
