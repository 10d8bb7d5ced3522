// correctness 12: an inf in the gradient of one rank, at any place of the mesh, also in an element
// that the norm does not count (a tied copy, a replica), is seen by all ranks, who agree on its
// name.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/examples/minigpt/minigpt_run.h"

namespace triax::minigpt::non_finite_test {

constexpr double infinity = std::numeric_limits<double>::infinity();

Job tiny(const Layout& layout, int64_t micros) {
  Job c;
  c.model = {.layers = 2, .heads = 2, .width = 8, .context = 4, .vocab = 5};
  c.set(layout);
  c.step().micro_batch = 1;
  c.step().global_batch = micros * layout.dp;
  return c;
}

/// One sequence of zeros.
nn::Batch zero_tokens(const Job& c, int64_t first) {
  Tensor tokens = zeros({1, c.model.context}, i32, cpu);
  return {tokens, tokens, first};
}

parallel::Replica replica_of(const Job& c, parallel::Mesh& mesh,
                             const parallel::LayerObserver& observer = {}) {
  auto build = build_of(c.model);
  return {mesh, build, c.step(), probe(build, zero_tokens(c, 0), probe_options(c.step())),
          observer};
}

/// The first element that this rank's slots hold of the gradient of `name`; undefined: none.
Tensor first_element(const parallel::DataParallel& data, const std::string& name) {
  auto slots = data.slots();
  for (size_t i = 0; i < slots.size(); ++i)
    for (auto& piece : data.slot_pieces(i))
      if (piece.parameter->name == name) return slots[i].grad.narrow(0, piece.begin, 1);
  return {};
}

void expect_vote(const Layout& layout) {
  SCOPED_TRACE(describe(layout));
  Job c = tiny(layout, 1);
  on_mesh(layout.mesh(), [&](parallel::Mesh& mesh) {
    auto& world = mesh.world();
    auto replica = replica_of(c, mesh);
    replica.forward_backward([&](int64_t) { return zero_tokens(c, nn::evaluation); }, {});
    auto& data = replica.data();
    double healthy = data.norm().value;
    EXPECT_TRUE(std::isfinite(healthy));
    int held = 0;
    for (int rank = 0; rank < world.size(); ++rank)
      for (auto* name : {"tokens.table", "block0.norm1.gamma", "block0.up.weight",
                         "block1.down.bias", "final_norm.beta"}) {
        Tensor there = world.rank() == rank ? first_element(data, name) : Tensor();
        float before = there.defined() ? float(there.item()) : 0;
        if (there.defined()) fill_(there, infinity);
        Tensor holds = full({1}, there.defined(), f32, cpu);
        world.all_reduce(holds).wait();
        bool bad = holds.item() > 0;
        held += bad;
        EXPECT_EQ(data.norm().value, bad ? infinity : healthy) << name << " on rank " << rank;
        EXPECT_EQ(data.norm().non_finite, bad ? 1 : 0) << name << " on rank " << rank;
        auto found = data.first_non_finite();
        EXPECT_EQ(found.parameter, bad ? name : "") << "on rank " << rank;
        EXPECT_EQ(found.rank, bad ? rank : -1) << name;
        EXPECT_EQ(found.micro, -1);
        if (there.defined()) fill_(there, before);
      }
    EXPECT_GE(held, 5 * layout.tp);
  });
}

TEST(NonFinite, IsSeenWhereverItIs) {
  expect_vote({.dp = 1, .pp = 2, .tp = 2});
  expect_vote({.dp = 1, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3});
  expect_vote({.dp = 2, .pp = 2});
  expect_vote({.dp = 2, .pp = 2, .zero = 1});
  for (int zero : {0, 1, 2, 3})
    expect_vote({.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = zero != 2, .zero = zero});
}

/// One activation gradient of one micro-batch at one place of the mesh becomes infinite: watched,
/// the step says where.
void expect_found(const Layout& layout) {
  SCOPED_TRACE(describe(layout));
  Job c = tiny(layout, 3);
  for (int rank = 0; rank < layout.ranks(); ++rank)
    for (int64_t micro : {0, 2})
      on_mesh(layout.mesh(), [&](parallel::Mesh& mesh) {
        auto plant = [&](const std::string& layer, const Tensor& y, const nn::Batch& batch) {
          if (layer != "block0" && layer != "block1") return;
          if (mesh.world().rank() == rank && batch.first == micro)
            fill_(y.detach().narrow(0, 0, 1), infinity);
        };
        auto replica = replica_of(c, mesh, plant);
        replica.forward_backward([&](int64_t at) { return zero_tokens(c, at); }, {},
                                 parallel::Replica::Watch::on);
        auto found = replica.data().first_non_finite();
        EXPECT_EQ(found.micro, micro) << "rank " << rank;
        EXPECT_FALSE(found.parameter.empty()) << "rank " << rank << ", micro-batch " << micro;
        // What leaves a tensor-parallel rank or a stage spoils those after it; data stays apart.
        EXPECT_EQ(mesh.shape().place(found.rank, {"dp"}), mesh.shape().place(rank, {"dp"}));
      });
}

TEST(NonFinite, IsTracedToItsMicroBatch) {
  expect_found({.dp = 1});
  expect_found({.dp = 3});
  expect_found({.dp = 2, .pp = 2});
  expect_found({.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"});
  expect_found({.dp = 2, .tp = 2, .zero = 1});
  expect_found({.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3});
}

}  // namespace triax::minigpt::non_finite_test
