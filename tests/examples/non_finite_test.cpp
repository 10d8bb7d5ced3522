// correctness 12: an inf in the gradient of one rank, at any place of the mesh, also in an element
// that the norm does not count (a tied copy, a replica), is seen by all ranks, who agree on its
// name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "examples/minigpt/replica.h"
#include "parallel/comm/threads/thread_comm.h"

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
        auto found = data.first_non_finite();
        EXPECT_EQ(found.parameter, bad ? name : "") << "on rank " << rank;
        EXPECT_EQ(found.rank, bad ? rank : -1) << name;
        EXPECT_EQ(found.micro, -1);
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

/// One activation gradient of one micro-batch at one place of the mesh becomes infinite: watched,
/// the step says where.
void expect_found(const MeshConfig& shape) {
  SCOPED_TRACE(fmt::format("dp {} pp {} tp {}, zero {}, {}", shape.dp, shape.pp, shape.tp,
                           shape.zero, shape.schedule));
  TrainConfig c = tiny(shape);
  c.global_batch = 3 * c.mesh.dp;
  const MeshConfig& m = c.mesh;
  int ranks = int(m.dp * m.pp * m.tp);
  for (int rank = 0; rank < ranks; ++rank)
    for (int64_t micro : {0, 2})
      parallel::run_ranks(ranks, [&](parallel::Communicator& world) {
        parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
        auto plant = [&](const std::string& layer, const Tensor& y, const nn::Batch& batch) {
          if (layer != "block0" && layer != "block1") return;
          if (world.rank() == rank && batch.first == micro)
            fill_(y.detach().narrow(0, 0, 1), infinity);
        };
        Replica replica(c, mesh, plant);
        Tensor ids = zeros({c.model.context}, i32, cpu);
        auto batch = [&](int64_t at) { return nn::Batch{ids, ids, c.model.context, at}; };
        replica.step(batch, 1, Replica::Watch::on);
        auto found = replica.data().first_non_finite();
        EXPECT_EQ(found.micro, micro) << "rank " << rank;
        EXPECT_FALSE(found.parameter.empty()) << "rank " << rank << ", micro-batch " << micro;
        // What leaves a tensor-parallel rank or a stage spoils those after it; data stays apart.
        EXPECT_EQ(parallel::point_of(mesh.shape(), found.rank).dp,
                  parallel::point_of(mesh.shape(), rank).dp);
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

}  // namespace
}  // namespace triax::minigpt
