#include "triax/core/check.h"
#include "triax/parallel/context/forms.h"

// An all-to-all gives each rank all rows of some heads, attention is that of one rank, and another
// brings rows of all heads back. Each is the other's backward.
namespace triax::parallel {
namespace {

/// Returns x [samples * rows, heads, n] as [samples * all rows, heads / ranks, n].
Tensor to_heads(const ContextRows& r, const Tensor& x) {
  int64_t ranks = r.cp.size(), heads = x.size(1) / ranks, n = x.size(2);
  Tensor from = r.cp.empty({ranks, x.size(0), heads, n}, x.dtype());
  Tensor to = r.cp.empty(from.shape(), x.dtype());
  copy_(from, x.contiguous().view({x.size(0), ranks, heads, n}).transpose(0, 1));
  r.cp.all_to_all(from, to).wait();
  return r.by_position(to, r.samples).view({r.samples * r.all(), heads, n});
}

/// Returns it the other way.
Tensor to_rows(const ContextRows& r, const Tensor& x) {
  int64_t ranks = r.cp.size(), heads = x.size(1), n = x.size(2), tokens = r.samples * r.rows();
  Tensor from = r.by_rank(x.contiguous(), r.samples);
  Tensor to = r.cp.empty(from.shape(), x.dtype());
  r.cp.all_to_all(from, to).wait();
  Tensor y = empty({tokens, ranks, heads, n}, x.dtype(), x.device());
  copy_(y, to.view({ranks, tokens, heads, n}).transpose(0, 1));
  return y.view({tokens, ranks * heads, n});
}

}  // namespace

Tensor heads_attention(const ContextRows& r, const Qkv& in) {
  int64_t kv_heads = in.q.size(1), group = in.q.size(2), dim = in.q.size(3), ranks = r.cp.size();
  check_input(
      kv_heads % ranks == 0, Exit::config,
      "cp={} with cp-form=heads does not divide the {} key-value heads of a rank\n"
      "  Each rank attends with whole heads: take a smaller --cp, or --cp-form ring or gather.",
      ranks, kv_heads);
  int64_t mine = kv_heads / ranks;
  auto over = [&](const Tensor& x, int64_t width) {  // all rows, key-value heads of this rank
    Tensor rows = reshape(x, {x.size(0), kv_heads, width * dim});
    Tensor y = record("rows_to_heads", to_heads(r, rows.detach()), {rows},
                      [r](const Tensor& dy) { return Tensors{to_rows(r, dy)}; });
    return view(y, {y.size(0), mine, width, dim});
  };
  random::Mask mask = r.mask;
  mask.column += r.cp.rank() * mine * group * r.all();
  AttentionShape whole = r.shape;
  whole.time = r.all(), whole.key_time = 0;
  Tensor y = attention(over(in.q, group), over(in.k, 1), over(in.v, 1), whole, mask);
  y = view(y, {y.size(0), mine, group * dim});
  Tensor back = record("heads_to_rows", to_rows(r, y.detach()), {y},
                       [r](const Tensor& dy) { return Tensors{to_heads(r, dy)}; });
  return view(back, {in.q.size(0), kv_heads * group * dim});
}

}  // namespace triax::parallel
