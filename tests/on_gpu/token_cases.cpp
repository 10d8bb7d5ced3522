#include "tests/on_gpu/on.h"
#include "triax/core/numbers/update.h"
#include "triax/core/shared/attention.h"

namespace triax::test {
namespace {

void embeddings(On& on) {
  for (int64_t n : sizes)
    for (DType index : {i32, i64}) {
      Tensor ids = on.ids({n}, 60, index), table = on.in({30, 48}, 1), dy = on.in({n, 48}, 2);
      on.backend.embedding(ids, table, 10, on.out({n, 48}));
      for (Write write : {Write::set, Write::add}) {
        on.backend.embedding_backward(ids, dy, 10, on.out({30, 48}), write);
        on.backend.embedding_backward(ids, dy, 10, on.out({30, 48}, on.sums), write);
      }
    }
}

// Rows of 750 and 1500 tokens, which are summed in pieces.
void frequent_embeddings(On& on) {
  for (int64_t width : {33, 48}) {
    Tensor ids = on.ids({3000}, 4), dy = on.in({3000, width}, 2);
    for (Write write : {Write::set, Write::add})
      on.backend.embedding_backward(ids, dy, 1, on.out({4, width}, on.sums), write);
  }
}

// A whole vocabulary with padding behind it, and a slice of a larger one.
void cross_entropies(On& on) {
  for (int64_t n : {8, 33, 1000, 5000})
    for (int64_t first : {0, 3}) {
      int64_t rows = n > 1000 ? 5 : 33;
      CrossEntropy c{.logits = on.in({rows, n}, 1, 3),
                     .targets = on.ids({rows}, n - 1, first ? i64 : i32),
                     .first = first,
                     .vocab = first + n - 2,
                     .ignore = 2,
                     .smoothing = first ? 0.1 : 0};
      Tensor stats = on.out({rows, 4}, on.sums), scale = on.in({1}, 2, on.sums);
      on.backend.cross_entropy_stats(c, stats);
      on.backend.cross_entropy_losses(c, stats, on.out({rows}, on.sums));
      on.backend.cross_entropy_backward(c, stats, scale, on.out({rows, n}));
      CrossEntropy placed = c;
      placed.logits = on.state(c.logits);
      on.backend.cross_entropy_backward(placed, stats, scale, placed.logits);
      placed.logits = on.state(c.logits);
      on.backend.cross_entropy_at_once(placed, on.out({rows, 4}, on.sums), scale, placed.logits);
    }
}

/// run(attention, shape of y, shape of lse) for several lengths, bands and groups, with and without
/// dropout.
template <class F> void attend(On& on, F run) {
  for (int64_t time : {1, 33, 128})
    for (int64_t head : {5, 64})
      for (float p : {0.f, 0.2f})
        for (int64_t group : {1, 2}) {
          if (time == 33 && head == 64) continue;
          const int64_t tokens = 2 * time, kv_heads = 3, heads = kv_heads * group;
          Qkv in = unpack(on.in({tokens, kv_heads, group + 2, head}, 1));
          int64_t window = group == 2 ? 20 : 0;
          random::Mask mask{p, 5, 100, 7};
          Shape y{tokens, heads * head}, lse{tokens, heads};
          run(Attention{in, time, Band::causal(time, time, window), mask}, y, lse);
          if (group == 2) run(Attention{in, time, Band::all(time, time), mask}, y, lse);
        }
}

void attentions(On& on) {
  attend(on, [&](const Attention& a, const Shape& y, const Shape& lse) {
    on.backend.attention(a, on.out(y), on.out(lse, on.sums));
  });
}

void attentions_backward(On& on) {
  attend(on, [&](const Attention& a, const Shape& shape, const Shape& of_lse) {
    Tensor y = empty(shape, on.dtype, on.device), lse = empty(of_lse, on.sums, on.device);
    on.backend.attention(a, y, lse);
    Tensor d = on.out({shape[0], a.kv_heads(), a.group() + 2, a.head_dim()});
    on.backend.attention_backward(a, y, lse, on.in(shape, 2), unpack(d));
  });
}

/// A slot of `n` elements; its weight, and master if it has one, are outputs.
OptimizerSlot slot(On& on, int64_t n) {
  Tensor start = on.in({n}, 1, on.sums);
  OptimizerSlot s{on.state(start.to(on.dtype)), on.in({n}, 2, on.sums), {}, {}};
  if (on.dtype != on.sums) s.master = on.state(start);
  if (n > 10) s.decayed = {{0, 2}, {5, n / 2}, {n - 3, n}};
  return s;
}

void adamw(On& on) {
  for (int64_t n : sizes) {
    OptimizerSlot s = slot(on, n);
    Tensor m = on.state(zeros({n}, on.sums, on.device)), v = on.state(zeros_like(m));
    for (int64_t step = 1; step <= 3; ++step)
      on.backend.update(s, {m, v}, AdamWRule{0.9, 0.99, 1e-8, 0.1}, {1e-2, 0.5, step});
  }
}

// Planned on the device: the third step does not happen, since a gradient is not finite, nor the
// fourth, since the loss is not.
void planned(On& on) {
  OptimizerSlot s = slot(on, 1000);
  Tensor m = on.state(zeros({1000}, on.sums, on.device)), v = on.state(zeros_like(m));
  Tensor decision = on.state(zeros({StepDecision::size}, f64, on.device));
  for (double step : {1., 2., 3., 4., 5.}) {
    StepRequest request{1e-2, step, 8, 1, 0};
    Tensor totals = zeros({StepTotals::size}, f64, on.device);
    on.backend.squares(s.grad, totals.narrow(0, 1, 2));
    if (step == 3) fill_(totals.narrow(0, 2, 1), 1);
    if (step == 4) fill_(totals.narrow(0, 0, 1), NAN);
    on.backend.decide_step(from_host(values_of(request), {StepRequest::size}, on.device), totals,
                           decision);
    on.backend.update(s, {m, v}, AdamWRule{0.9, 0.99, 1e-8, 0.1}, {.decision = decision});
  }
}

void sgd(On& on) {
  for (int64_t n : sizes)
    for (double momentum : {0., 0.9})
      for (auto form : {SgdRule::Form::heavy_ball, SgdRule::Form::nesterov}) {
        OptimizerSlot s = slot(on, n);
        Tensor velocity = full({n}, NAN, on.sums, on.device);  // the first step must not read it
        for (int64_t step = 1; step <= 3; ++step)
          on.backend.update(s, {velocity}, SgdRule{momentum, 0.1, form}, {1e-2, 0.5, step});
      }
}

}  // namespace

std::vector<Case> token_cases() {
  return {{"embedding", 1, embeddings},
          {"embedding_of_frequent_rows", 40, frequent_embeddings},
          {"cross_entropy", 10, cross_entropies},
          {"attention", 10, attentions},
          {"attention_backward", 10, attentions_backward, Bits::vary},
          {"adamw", 3, adamw},
          {"adamw_as_planned", 3, planned},
          {"sgd", 3, sgd}};
}

}  // namespace triax::test
