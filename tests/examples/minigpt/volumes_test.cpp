// What tensor, sequence and pipeline parallelism send: calls and bytes by the ledger, against the
// closed forms of docs/strategies. dp and ZeRO: sharding_test.cpp. correctness 20.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/examples/minigpt/one_step.h"

namespace triax::minigpt::volumes_test {

using parallel::Call;

struct Sent {
  double calls = 0, bytes = 0;
};

void expect(const parallel::Ledger& ledger, Call::Kind kind, const Sent& sent) {
  EXPECT_EQ(double(ledger[kind].calls), sent.calls) << name(kind);
  EXPECT_NEAR(ledger[kind].bytes, sent.bytes, 1e-6) << name(kind);
}

/// What a stage holds, as far as tensor parallelism is concerned.
struct Held {
  double blocks = 0, embedding = 0, head = 0;
};

Held held(const parallel::Replica& replica, const parallel::Mesh& mesh) {
  auto& counts = replica.placement();
  auto stage = size_t(mesh.pp().rank());
  Held h{double(counts[stage])};
  if (stage == 0) --h.blocks, h.embedding = 1;
  if (stage + 1 == counts.size()) --h.blocks, h.head = 1;
  return h;
}

/// Elements of the parameters that all ranks of tp hold whole: norms, biases of the sums,
/// positions.
double whole(const ModelConfig& m, const Held& h) {
  auto width = double(m.width);
  return h.blocks * 6 * width + h.head * 2 * width + h.embedding * double(m.context) * width;
}

void check_tensor_parallel(const Job& c) {
  double n = double(c.step().mesh.tp), share = (n - 1) / n,
         micros = double(c.step().accumulation());
  double rows = double(c.step().micro_batch * c.model.context), all = rows * double(c.model.width);
  bool half = c.step().dtype == f16;  // its sums are sent in f32
  double value = half ? 2 : 4;
  auto look = [&](parallel::Mesh& mesh, const parallel::Replica& replica) {
    SCOPED_TRACE(fmt::format("tp {}, pp {}, stage {}", n, mesh.pp().size(), mesh.pp().rank()));
    Held h = held(replica, mesh);
    // Two ways in and two out a block, each passed forward and backward; the embedding has a way
    // out, whose backward is one only where rows are split; the head a way in, whose forward is.
    double sums = micros * (4 * h.blocks + h.head), embedded = micros * h.embedding;
    double ways = sums + embedded, summed = sums * 4 + embedded * value;
    Sent statistics{micros * h.head, micros * h.head * 4 * 4 * rows * (n - 1)};
    const parallel::Ledger& ledger = mesh.tp().ledger();
    if (!c.step().sequence_parallel) {
      expect(ledger, Call::all_reduce, {ways, summed * 2 * share * all});
      expect(ledger, Call::all_gather, statistics);
      expect(ledger, Call::reduce_scatter, {});
      EXPECT_EQ(double(ledger.total().calls), ways + statistics.calls);
      return;
    }
    // Inputs of the products behind a way in are gathered again for the gradients of weights.
    double gathers = ways + micros * (2 * h.blocks + h.head);
    expect(ledger, Call::all_gather,
           {gathers + statistics.calls, gathers * value * share * all + statistics.bytes});
    expect(ledger, Call::reduce_scatter, {ways, summed * share * all});
    // Parts of gradients are summed. In the first step two numbers of each are compared before, by
    // their largest and their smallest.
    double compared = 2 * 8 * (h.blocks * 6 + h.head * 2 + h.embedding);
    expect(ledger, Call::all_reduce, {3, 2 * share * (4 * whole(c.model, h) + 2 * compared)});
    EXPECT_EQ(double(ledger.total().calls), ways + gathers + statistics.calls + 3);
  };
  one_step(c, look, [](auto&, auto&) {});
}

TEST(Volumes, TensorParallel) {
  for (int tp : {2, 4})
    for (int pp : {1, 2})
      for (int64_t micros : {1, 3})
        for (bool sequence : {false, true}) {
          Job c = small_job({.dp = 1, .pp = pp, .tp = tp, .sequence_parallel = sequence}, micros);
          check_tensor_parallel(c);
          c.step().dtype = f16;
          check_tensor_parallel(c);
        }
}

TEST(Volumes, NoRanksToShareWithCostNothing) {
  one_step(
      small_job({.dp = 1, .pp = 2, .tp = 1, .sequence_parallel = true}, 2),
      [](parallel::Mesh& mesh, const parallel::Replica&) {
        EXPECT_EQ(mesh.tp().ledger().total().bytes, 0);
      },
      [](auto&, auto&) {});
}

void check_pipeline(const Job& c) {
  parallel::PipelineShape shape = c.step().pipeline();
  double rows = double(c.step().micro_batch * c.model.context);
  if (c.step().sequence_parallel) rows /= double(c.step().mesh.tp);
  auto look = [&](parallel::Mesh& mesh, const parallel::Replica& replica) {
    Sent sent;
    for (auto* link : replica.pipeline().links()) {
      sent.bytes += link->ledger().total().bytes;
      sent.calls += double(link->ledger()[Call::send].calls);
    }
    // At every cut an activation on and a gradient back, but where a V turns.
    double expected = 0;
    for (int v = 0; v + 1 < shape.virtual_stages(); ++v)
      if (int on = shape.stage_of(v), back = shape.stage_of(v + 1); on != back)
        expected += shape.micros * ((on == mesh.pp().rank()) + (back == mesh.pp().rank()));
    SCOPED_TRACE(
        fmt::format("pp {}, {}, stage {}", mesh.pp().size(), c.step().schedule, mesh.pp().rank()));
    EXPECT_EQ(sent.calls, expected);
    EXPECT_EQ(sent.bytes, expected * rows * double(c.model.width) * 4);
    EXPECT_EQ(mesh.pp().ledger().total().bytes, 0);
  };
  one_step(c, look, [](auto&, auto&) {});
}

TEST(Volumes, PipelinesSendOneActivationAndOneGradientAMicroBatchAndPiece) {
  for (int tp : {1, 2})
    for (bool sequence : {false, true}) {
      check_pipeline(small_job({.dp = 1, .pp = 2, .tp = tp, .sequence_parallel = sequence}, 3));
      check_pipeline(small_job({.dp = 1, .pp = 3, .tp = tp, .sequence_parallel = sequence}, 3));
    }
  check_pipeline(small_job({.dp = 1, .pp = 4, .tp = 1, .schedule = "zb-h1"}, 4));
  check_pipeline(small_job({.dp = 1, .pp = 2, .tp = 1, .schedule = "interleaved", .chunks = 2}, 3));
  for (int pp : {2, 3})
    check_pipeline(small_job({.dp = 1, .pp = pp, .tp = 1, .schedule = "zb-v"}, 3));
}

// The first and the last stage sum the gradient of the table that they both hold, once a step; with
// ZeRO each rank of dp its slice.
TEST(Volumes, TiedEndsAreSummedOnce) {
  for (int dp : {1, 2})
    for (int tp : {1, 2})
      for (int zero : {0, 1, 2, 3}) {
        Job c = small_job({.dp = dp, .pp = 3, .tp = tp, .zero = zero}, 2);
        double table = double(c.model.vocab * c.model.width) / double(tp);
        double summed = zero > 0 ? table / double(dp) : table;
        auto look = [&](parallel::Mesh& mesh, const parallel::Replica&) {
          SCOPED_TRACE(
              fmt::format("dp {}, tp {}, ZeRO {}, stage {}", dp, tp, zero, mesh.pp().rank()));
          bool end = mesh.pp().rank() != 1;
          const parallel::Ledger& ledger = mesh.ends().ledger();
          EXPECT_EQ(double(ledger.total().bytes), end ? 4 * summed : 0);
          EXPECT_EQ(ledger.total().calls, end ? 1 : 0);
        };
        one_step(c, look, [](auto&, auto&) {});
      }
}

// In a V the first stage has both ends of the model.
TEST(Volumes, TiedEndsOfAVAreSummedByNobody) {
  for (int zero : {0, 3}) {
    Job c = small_job({.dp = 2, .pp = 3, .zero = zero, .schedule = "zb-v"}, 2);
    auto look = [&](parallel::Mesh& mesh, const parallel::Replica& replica) {
      auto holds = [&](const char* layer) {
        return std::ranges::any_of(replica.chunks(), [&](auto& chunk) {
          return std::ranges::any_of(chunk, [&](auto& l) { return l.name == layer; });
        });
      };
      EXPECT_EQ(mesh.ends().ledger().total().calls, 0);
      bool first = mesh.pp().rank() == 0;
      EXPECT_EQ(holds("embedding"), first);
      EXPECT_EQ(holds("head"), first);
    };
    one_step(c, look, [](auto&, auto&) {});
  }
}

}  // namespace triax::minigpt::volumes_test
