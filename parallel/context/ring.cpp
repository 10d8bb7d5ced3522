#include <cmath>

#include "triax/core/backend.h"
#include "triax/parallel/context/forms.h"

// Each rank's keys and values pass round, from rank r to r + 1; each rank meets them with its
// queries. While a block is at work, the next is on its way. In backward the gradients of keys and
// values follow them, and come home after a round.
namespace triax::parallel {
namespace {

/// Queries of a rank and the keys that came from another: the rows of each here, and their
/// positions.
struct Block {
  nn::Span q, k, q_at, k_at;
};

/// The softmax of a rank's queries over blocks of keys, one after the other: parts are joined by
/// their log-sum-exps (Milakov and Gimelshein, "Online normalizer calculation", 2018).
class Joined {
 public:
  explicit Joined(const Tensor& q)
      : y_(zeros({q.size(0), q.size(1) * q.size(2), q.size(3)}, accumulator(q.dtype()),
                 q.device())),
        lse_(full({q.size(0), y_.size(1)}, -INFINITY, y_.dtype(), q.device())) {}

  /// Adds y [rows, heads * head_dim] and lse [rows, heads] of the rows from `first` on.
  void add(int64_t first, const Tensor& y, const Tensor& lse) {
    NoGrad guard;
    Tensor rows = y_.narrow(0, first, lse.size(0)), logs = lse_.narrow(0, first, lse.size(0));
    Tensor both = stack(Tensors{logs, lse}, 0), top = max(both, {0}, Keep::yes);
    Tensor parts = exp(both - top), total = sum(parts, {0}), shares = parts / total;
    auto share = [&](int64_t i) {
      return shares.narrow(0, i, 1).contiguous().view({lse.size(0), lse.size(1), 1});
    };
    copy_(rows, rows * share(0) + y.to(y_.dtype()).view(rows.shape()) * share(1));
    copy_(logs, top.view(logs.shape()) + log(total));
  }
  Tensor y() const { return y_.view({y_.size(0), y_.size(1) * y_.size(2)}); }
  const Tensor& lse() const { return lse_; }

 private:
  Tensor y_, lse_;  // [tokens, heads, head_dim], [tokens, heads]
};

struct Ring : ContextRows {
  /// Returns the rank whose keys are here at `turn`.
  int source(int turn) const { return (cp.rank() - turn + cp.size()) % cp.size(); }
  /// Returns what some queries see of the keys that are here at `turn`.
  std::vector<Block> blocks(int turn) const {
    std::vector<Block> all;
    int64_t q_at = 0;
    for (const nn::Span& q : spans(cp.rank())) {
      int64_t k_at = 0;
      for (const nn::Span& k : spans(source(turn))) {
        if (!shape.causal || k.first <= q.first)
          all.push_back({q, k, {q_at, q.count}, {k_at, k.count}});
        k_at += k.count;
      }
      q_at += q.count;
    }
    return all;
  }
  /// Calls f(sample, block, what a kernel is asked) for each of a turn's blocks.
  template <class F> void each(int turn, const Tensor& q, const Tensor& kv, F f) const {
    for (int64_t i = 0; i < samples; ++i)
      for (const Block& b : blocks(turn)) {
        auto keys = [&](int64_t which) { return rows_of(half_of(kv, which), samples, i, b.k_at); };
        f(i, b, attention({rows_of(q, samples, i, b.q_at), keys(0), keys(1)}, i, b.q, b.k));
      }
  }
  /// Calls at_work(turn, keys and values) for every turn; those of the next come in meanwhile.
  template <class F> void turn_round(Tensor kv, F at_work) const {
    for (int turn = 0; turn < cp.size(); ++turn) {
      Tensor coming;
      Work passing;
      if (turn + 1 < cp.size()) {
        coming = cp.empty(kv.shape(), kv.dtype());
        passing = shift(cp, kv, coming, 1);
      }
      at_work(turn, kv);
      passing.wait();
      kv = coming;
    }
  }
};

Joined forward(const Ring& ring, const Tensor& q, const Tensor& kv) {
  Joined joined(q);
  ring.turn_round(kv, [&](int turn, const Tensor& now) {
    ring.each(turn, q, now, [&](int64_t i, const Block& b, const Attention& a) {
      Tensor y = empty({b.q.count, a.heads() * a.head_dim()}, q.dtype(), q.device());
      Tensor lse = empty({b.q.count, a.heads()}, accumulator(q.dtype()), q.device());
      backend(q).attention(a, y, lse);
      joined.add(i * ring.rows() + b.q_at.first, y, lse);
    });
  });
  return joined;
}

/// Adds a turn's part to the gradients of queries and of the keys and values that are here.
void add_turn(const Ring& ring, int turn, const Tensor& q, const Tensor& kv, const Tensors& kept,
              const Tensor& dq, const Tensor& dkv) {
  ring.each(turn, q, kv, [&](int64_t i, const Block& b, const Attention& a) {
    auto of = [&](const Tensor& x) { return rows_of(x, ring.samples, i, b.q_at); };
    Qkv d{empty_like(a.in.q), empty_like(a.in.k), empty_like(a.in.v)};
    backend(q).attention_backward(a, of(kept[0]), of(kept[1]), of(kept[2]), d);
    backend(q).accumulate(d.q, of(dq));
    auto keys = [&](int64_t n) { return rows_of(half_of(dkv, n), ring.samples, i, b.k_at); };
    backend(q).accumulate(d.k, keys(0));
    backend(q).accumulate(d.v, keys(1));
  });
}

/// `kept`: y, its log-sum-exps, dy. Returns the gradients of queries, keys and values.
Tensors backward(const Ring& ring, const Tensor& q, const Tensor& kv, const Tensors& kept) {
  DType wide = accumulator(q.dtype());
  auto zeros_like = [&](const Tensor& x) {
    Tensor z = ring.cp.empty(x.shape(), wide);
    fill_(z, 0);
    return z;
  };
  Tensor dq = zeros_like(q), home = zeros_like(kv), leaving, following;
  Work passing;
  ring.turn_round(kv, [&](int turn, const Tensor& now) {
    Tensor part = turn == 0 ? home : zeros_like(now);
    add_turn(ring, turn, q, now, kept, dq, part);
    if (turn == 0) return;
    passing.wait();
    if (turn > 1) backend(part).accumulate(following, part);
    leaving = part;
    following = ring.cp.empty(kv.shape(), wide);
    passing = shift(ring.cp, leaving, following, 1);
  });
  passing.wait();
  backend(home).accumulate(following, home);
  auto rounded = [&](const Tensor& x) { return x.to(q.dtype()); };
  return {rounded(dq), rounded(half_of(home, 0)), rounded(half_of(home, 1))};
}

}  // namespace

Tensor ring_attention(const ContextRows& rows, const Qkv& in) {
  Ring ring{rows};
  Tensor q = in.q.detach().contiguous();
  Tensor kv = rows.keys_values(in);
  Joined out = forward(ring, q, kv);
  Tensor y = out.y().to(q.dtype());
  return record("ring_attention", y, {in.q, in.k, in.v},
                [ring, q, kv, y = y.detach(), lse = out.lse()](const Tensor& dy) {
                  return backward(ring, q, kv, {y, lse, dy.contiguous()});
                });
}

}  // namespace triax::parallel
