// Attention over samples whose rows are on several ranks, in all forms: it gives what one rank with
// all rows computes, forward and backward.
#include "triax/parallel/context/context_parallel.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_ranks.h"
#include "triax/autograd/backward.h"
#include "triax/parallel/comm/meta_comm.h"

namespace triax::parallel::context_parallel_test {

using namespace test;

constexpr ContextForm forms[] = {ContextForm::ring, ContextForm::heads, ContextForm::gather};

struct Case {
  int64_t samples = 1, rows = 16, kv_heads = 4, group = 1, dim = 8;  // rows of a whole sample
  bool causal = true;
  int64_t window = 0;
  random::Mask mask = {};
};

/// Returns x [samples * rows, ..]'s rows that a rank of `ranks` has.
Tensor share(const Tensor& x, int64_t samples, int ranks, int rank) {
  Shape apart = x.shape();
  apart[0] /= samples;
  apart.insert(0, samples);
  Tensor mine = rows_of_rank({.input = x.view(apart)}, ranks, rank).input;
  Shape shape = x.shape();
  shape[0] /= ranks;
  return clone(mine).view(shape);
}

struct Outcome {
  Tensor y, dq, dk, dv;
};

Outcome attended(const Qkv& in, const Tensor& dy, const std::function<Tensor(const Qkv&)>& by) {
  Qkv x{clone(in.q), clone(in.k), clone(in.v)};
  for (Tensor* t : {&x.q, &x.k, &x.v}) require_grad(*t);
  Tensor y = by(x);
  backward(y, dy);
  return {y.detach(), grad(x.q), grad(x.k), grad(x.v)};
}

void expect_like_one_rank(const Case& c, int ranks, ContextForm form, DType dtype, double error) {
  int64_t tokens = c.samples * c.rows;
  auto made = [&](int64_t heads, int64_t group, uint64_t key) {
    return filled({tokens, heads, group, c.dim}, key, dtype);
  };
  Qkv all{made(c.kv_heads, c.group, 1), made(c.kv_heads, 1, 2), made(c.kv_heads, 1, 3)};
  Tensor dy = filled({tokens, c.kv_heads * c.group * c.dim}, 4, dtype);
  AttentionShape shape{.time = c.rows, .causal = c.causal, .window = c.window};
  Outcome one =
      attended(all, dy, [&](const Qkv& x) { return attention(x.q, x.k, x.v, shape, c.mask); });
  run_ranks(ranks, [&](Communicator& comm) {
    auto mine = [&](const Tensor& x) { return share(x, c.samples, ranks, comm.rank()); };
    ContextParallel context(comm, form);
    AttentionShape here = shape;
    here.time = c.rows / ranks;
    Outcome got = attended({mine(all.q), mine(all.k), mine(all.v)}, mine(dy),
                           [&](const Qkv& x) { return context.attend(x, here, c.mask); });
    auto near = [&](const char* what, const Tensor& x, const Tensor& whole) {
      auto found = values(x), expected = values(mine(whole));
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], error) << what << " " << i << " of rank " << comm.rank();
    };
    near("y", got.y, one.y);
    near("dq", got.dq, one.dq);
    near("dk", got.dk, one.dk);
    near("dv", got.dv, one.dv);
  });
}

TEST(ContextParallelTest, ZigzagSharesOutRowsAndCausalWork) {
  for (int ranks : {1, 2, 3, 4}) {
    int64_t mine = 6, whole = ranks * mine;
    std::set<int64_t> rows;
    std::set<int64_t> work;
    for (int r = 0; r < ranks; ++r) {
      int64_t seen = 0, count = 0;
      for (const nn::Span& s : zigzag(ranks, r, mine))
        for (int64_t i = s.first; i < s.first + s.count; ++i) rows.insert(i), seen += i, ++count;
      EXPECT_EQ(count, mine);
      work.insert(seen);
    }
    EXPECT_EQ(std::ssize(rows), whole);
    EXPECT_EQ(*rows.rbegin(), whole - 1);
    EXPECT_EQ(work.size(), 1u) << "causal work is the number of keys before";
  }
  EXPECT_EQ(error_of([] { zigzag(2, 0, 3); }, Exit::config),
            "context parallel: 3 rows of a sample on each of 2 ranks; expected an even number");
}

TEST(ContextParallelTest, AttendsAsOneRank) {
  std::vector<Case> cases{{},
                          {.samples = 3, .rows = 24},
                          {.kv_heads = 4, .group = 3},
                          {.causal = false},
                          {.samples = 2, .mask = {.p = 0.3f, .key = 4, .row = 48, .column = 64}}};
  for (int ranks : {1, 2, 4})
    for (ContextForm form : forms)
      for (auto [dtype, error] : {std::pair(f64, 1e-12), {f32, 1e-5}, {bf16, 0.06}})
        for (size_t i = 0; i < cases.size(); ++i) {
          SCOPED_TRACE(
              fmt::format("{} ranks, form {}, {}, case {}", ranks, int(form), name(dtype), i));
          expect_like_one_rank(cases[i], ranks, form, dtype, error);
        }
}

TEST(ContextParallelTest, WindowsReachOverRanks) {
  for (ContextForm form : {ContextForm::heads, ContextForm::gather})
    for (int64_t window : {1, 3, 7, 100})
      expect_like_one_rank({.samples = 2, .window = window}, 2, form, f32, 1e-5);
  run_ranks(2, [](Communicator& comm) {
    Tensor x = filled({8, 2, 1, 4}, 1, f32);
    ContextParallel context(comm, ContextForm::ring);
    EXPECT_EQ(error_of(
                  [&] {
                    context.attend({x, x, x}, {.time = 8, .window = 3}, {});
                  },
                  Exit::config),
              "cp=2 with cp-form=ring and a window of 3 keys\n  Of most keys that pass round no "
              "query sees any. Take --cp-form gather or heads.");
  });
}

// Elements that a rank sends: n ranks, R rows of all samples together, q and k elements of a row.
TEST(ContextParallelTest, SendsWhatTheClosedFormsSay) {
  const int64_t R = 2 * 24, q = 4 * 2 * 8, k = 4 * 8;
  for (int64_t n : {2, 3, 4}) {
    auto sent = [&](ContextForm form, int64_t heads) {
      MetaComm comm(int(n), 0);
      ContextParallel context(comm, form);
      auto made = [&](int64_t group) {
        return empty({R / n, heads, group, q / heads / 2}, f32, meta_device);
      };
      Qkv in{made(2), made(1), made(1)};
      for (Tensor* t : {&in.q, &in.k, &in.v}) require_grad(*t);
      Tensor y = context.attend(in, {.time = 24 / n}, {});
      double forward = comm.ledger().total().bytes / 4;
      backward(y, empty(y.shape(), f32, meta_device));
      return std::pair(forward, comm.ledger().total().bytes / 4 - forward);
    };
    double part = double((n - 1) * R) / double(n);
    EXPECT_EQ(sent(ContextForm::ring, 4), std::pair(2 * part * k, 4 * part * k)) << n;
    EXPECT_EQ(sent(ContextForm::gather, 4), std::pair(2 * part * k, 4 * part * k)) << n;
    if (4 % n != 0) continue;
    double each = 2 * part * (q + k) / double(n);
    EXPECT_EQ(sent(ContextForm::heads, 4), std::pair(each, each)) << n;
  }
}

TEST(ContextParallelTest, RefusesWhatItCannotShareOut) {
  nn::Batch batch{.input = zeros({2, 10}, i32, cpu), .target = zeros({2, 10}, i32, cpu)};
  EXPECT_EQ(
      error_of([&] { rows_of_rank(batch, 2, 0); }, Exit::config),
      "cp=2 with input [2, 10] i32 on cpu; expected dim 1 to count rows of a sample, a multiple "
      "of 4\n  Take samples of such a length, or --cp 1.");
  batch.input = zeros({2, 8}, i32, cpu);
  EXPECT_EQ(
      error_of([&] { rows_of_rank(batch, 2, 0); }, Exit::config),
      "cp=2 with [2, 10] i32 on cpu beside input [2, 8] i32 on cpu; expected equally many rows "
      "in dim 1\n  Take --cp 1.");
  run_ranks(2, [](Communicator& comm) {
    Tensor x = filled({8, 3, 1, 4}, 1, f32);
    ContextParallel context(comm, ContextForm::heads);
    EXPECT_EQ(
        error_of(
            [&] {
              context.attend({x, x, x}, {.time = 8}, {});
            },
            Exit::config),
        "cp=2 with cp-form=heads does not divide the 3 key-value heads of a rank\n  Each rank "
        "attends with whole heads: take a smaller --cp, or --cp-form ring or gather.");
    EXPECT_EQ(error_of(
                  [&] {
                    context.attend({x, x, x}, {.time = 8, .key_time = 4}, {});
                  },
                  Exit::config),
              "cp=2 with 4 keys for 8 queries of a sample here; expected equally many");
  });
}

}  // namespace triax::parallel::context_parallel_test
