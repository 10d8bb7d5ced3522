#include "triax/core/shared/attention.h"

#include "triax/autograd/ops/common.h"

namespace triax {
namespace {

/// Returns x [tokens, heads, head_dim] or [tokens, kv_heads, group, head_dim] as the latter, with
/// rows of head_dim contiguous elements; it copies where they are not.
Tensor by_group(const Tensor& x, int64_t kv_heads) {
  Tensor y = x.detach();
  if (y.strides().back() != 1) y = y.contiguous();
  if (y.rank() == 4) return y;
  int64_t group = y.size(1) / kv_heads;
  const Shape& s = y.strides();
  return Tensor(y.storage(), y.dtype(), {y.size(0), kv_heads, group, y.size(2)},
                {s[0], group * s[1], s[1], s[2]}, y.offset());
}

/// Returns the number of query heads or, for k and v, of key-value heads.
int64_t heads_of(const Tensor& x) { return x.rank() == 4 ? x.size(1) * x.size(2) : x.size(1); }

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v) {
  autograd::check_float("attention", q);
  autograd::check_same("attention", q, k);
  autograd::check_same("attention", q, v);
  auto fits = [](const Tensor& x) { return (x.rank() == 3 || x.rank() == 4) && x.size(-1) > 0; };
  check(fits(q) && fits(k) && fits(v) && k.shape() == v.shape() && k.size(-1) == q.size(-1),
        "attention: queries {}, keys {}, values {}; expected [tokens, heads, head_dim] or [tokens, "
        "kv_heads, group, head_dim], one shape of keys and values and one head_dim",
        q.shape(), k.shape(), v.shape());
  check(k.rank() == 3 || k.size(2) == 1, "attention: keys {}; expected a group of 1", k.shape());
  int64_t heads = heads_of(q), kv_heads = heads_of(k);
  check(heads > 0 && kv_heads > 0 && heads % kv_heads == 0 &&
            (q.rank() == 3 || q.size(1) == kv_heads),
        "attention: {} query heads, {}, for {} key-value heads; expected a multiple of these",
        heads, q.shape(), kv_heads);
}

Attention attention_of(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionShape& shape, const random::Mask& mask) {
  check_tensors(q, k, v);
  int64_t time = shape.time, keys = shape.key_time ? shape.key_time : time;
  check(time > 0 && keys > 0 && q.size(0) % time == 0 && k.size(0) == q.size(0) / time * keys,
        "attention: {} query tokens and {} key tokens for time {} and key_time {}; expected equal "
        "numbers of whole sequences",
        q.size(0), k.size(0), time, keys);
  check(!shape.causal || keys >= time,
        "attention: causal with time {} and key_time {}; expected at least as many keys as queries",
        time, keys);
  check(shape.window >= 0 && (shape.window == 0 || shape.causal),
        "attention: window {}{}; expected at least 0, and 0 unless causal", shape.window,
        shape.causal ? "" : ", not causal");
  check(mask.p >= 0 && mask.p < 1, "attention: p {}; expected 0 <= p < 1", mask.p);
  int64_t kv_heads = heads_of(k);
  return {{by_group(q, kv_heads), by_group(k, kv_heads), by_group(v, kv_heads)},
          time,
          shape.causal ? Band::causal(time, keys, shape.window) : Band::all(time, keys),
          mask};
}

/// The results of forward.
struct Results {
  Tensor y, lse;
};
Results run(const Attention& a) {
  const Tensor& q = a.in.q;
  Results r{empty({q.size(0), a.heads() * a.head_dim()}, q.dtype(), q.device()),
            empty({q.size(0), a.heads()}, accumulator(q.dtype()), q.device())};
  backend(q).attention(a, r.y, r.lse);
  return r;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& shape,
                 const random::Mask& mask) {
  Attention a = attention_of(q, k, v, shape, mask);
  auto [y, lse] = run(a);
  return record(
      "attention", y, {q, k, v},
      [a, y = y.detach(), lse = lse, of_q = q.shape(), of_k = k.shape()](const Tensor& dy) {
        Qkv d{empty_like(a.in.q), empty_like(a.in.k), empty_like(a.in.v)};
        backend(y).attention_backward(a, y, lse, dy, d);
        return Tensors{d.q.view(of_q), d.k.view(of_k), d.v.view(of_k)};
      });
}

Tensor attention(const Tensor& qkv, const AttentionShape& shape, const random::Mask& mask) {
  autograd::check_float("attention", qkv);
  check(qkv.rank() == 4 && qkv.size(2) >= 3,
        "attention: packed projection {}; expected [tokens, kv_heads, group + 2, head_dim]",
        qkv.shape());
  Tensor packed = qkv.detach().contiguous();
  Qkv in = unpack(packed);
  Attention a = attention_of(in.q, in.k, in.v, shape, mask);
  auto [y, lse] = run(a);
  return record("attention", y, {qkv}, [a, packed, y = y.detach(), lse = lse](const Tensor& dy) {
    Tensor d = empty_like(packed);
    backend(y).attention_backward(a, y, lse, dy, unpack(d));
    return Tensors{d};
  });
}

}  // namespace triax
