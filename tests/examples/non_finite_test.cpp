// correctness 12: an inf in the gradient of one rank, at any place of the mesh, also in an element
// that the norm does not count (a tied copy, a replica), is seen by all ranks, who agree on its
// name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "examples/minigpt/replica.h"
#include "parallel/comm/thread_comm.h"

namespace triax::minigpt {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TrainConfig tiny(const MeshConfig& mesh) {
  TrainConfig c;
  c.model = {.layers = 2, .heads = 2, .width = 8, .context = 4, .vocab = 5};
  c.micro_batch = 1;
  c.mesh = mesh;
  c.data = "text";
  resolve(c, mesh.dp * mesh.pp * mesh.tp, "test");
  return c;
}

/// The first element that this rank's slots hold of the gradient of `name`; undefined: none.
Tensor first_element(const parallel::DataParallel& data, const std::string& name) {
  auto slots = data.slots();
  for (size_t i = 0; i < slots.size(); ++i)
    for (auto& piece : data.slot_pieces(i))
      if (piece.parameter->name == name) return slots[i].grad.narrow(0, piece.begin, 1);
  return {};
}

void expect_vote(const MeshConfig& shape) {
  SCOPED_TRACE(fmt::format("dp {} pp {} tp {}, zero {}", shape.dp, shape.pp, shape.tp, shape.zero));
  TrainConfig c = tiny(shape);
  const MeshConfig& m = c.mesh;
  parallel::run_ranks(int(m.dp * m.pp * m.tp), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Replica replica(c, mesh);
    Tensor ids = zeros({c.model.context}, i32, cpu);
    auto batch = [&](int64_t) { return nn::Batch{ids, ids, c.model.context, nn::evaluation}; };
    replica.step(batch, 1);
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
        EXPECT_EQ(data.first_non_finite(), bad ? name : "") << "on rank " << rank;
        if (there.defined()) fill_(there, before);
      }
    EXPECT_GE(held, 5 * int(m.tp));
  });
}

TEST(NonFinite, IsSeenWhereverItIs) {
  expect_vote({.dp = 1, .pp = 2, .tp = 2});
  expect_vote({.dp = 1, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3});
  expect_vote({.dp = 2, .pp = 2});
  expect_vote({.dp = 2, .pp = 2, .zero = 1});
  expect_vote({.dp = 2, .pp = 2, .tp = 2, .zero = 2});
}

}  // namespace
}  // namespace triax::minigpt
