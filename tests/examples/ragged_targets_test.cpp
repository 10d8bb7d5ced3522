// correctness 7: sequences in which different numbers of targets count. Divided by the number that
// counts in all micro-batches of all replicas, loss and gradient are those of one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/examples/one_step.h"

namespace triax::minigpt {
namespace {

constexpr int64_t sequences = 8;

/// Of sequence s of the step, the first 5 s mod 9 targets count: of the first none, of others all.
nn::Batch ragged(nn::Batch batch) {
  auto targets = batch.targets.to_host<int32_t>();
  for (size_t i = 0; i < targets.size(); ++i) {
    int64_t token = batch.first + int64_t(i), s = token / batch.time;
    if (token % batch.time >= 5 * s % 9) targets[i] = -1;
  }
  batch.targets = from_host(targets, batch.targets.shape(), cpu);
  return batch;
}

double counted(const nn::Batch& batch) {
  auto targets = batch.targets.to_host<int32_t>();
  return double(std::count_if(targets.begin(), targets.end(), [](int t) { return t != -1; }));
}

double sum_over(parallel::Communicator& ranks, double mine) {
  Tensor sum = full({1}, mine, f64, cpu);
  ranks.all_reduce(sum).wait();
  return sum.item();
}

struct Result {
  double loss = 0, norm = 0;
};
struct Cut {
  MeshConfig mesh;
  int64_t micro_batch;
};

Result step(const Cut& cut) {
  const MeshConfig& m = cut.mesh;
  TrainConfig c = config(m, 1);
  c.model.width = 16;
  c.model.dropout = 0.1;
  c.micro_batch = cut.micro_batch;
  c.global_batch = sequences;
  TextData text(some_text(), Tokenizer::from_text(some_text(), "text"),
                {.context = c.model.context, .name = "text"});
  Result result;
  parallel::run_ranks(int(m.dp * m.pp * m.tp), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Replica replica(c, mesh);
    Feed feed(c, text, mesh.dp());
    std::vector<nn::Batch> batches;
    double mine = 0;
    for (int64_t micro = 0; micro < c.accumulation(); ++micro) {
      batches.push_back(ragged(feed.at(1, micro)));
      mine += counted(batches.back());
    }
    double count = sum_over(mesh.dp(), mine);
    EXPECT_EQ(count, 0 + 5 + 1 + 6 + 2 + 7 + 3 + 8);
    double loss =
        replica.step([&](int64_t micro) { return batches[size_t(micro)]; }, 1 / count).item();
    loss = sum_over(world, loss) / count;
    double norm = replica.data().norm().value;
    if (world.rank() == 0) result = {loss, norm};
  });
  return result;
}

TEST(RaggedTargets, CountTheSameHoweverTheBatchIsCut) {
  Result one = step({{.dp = 1}, sequences});
  EXPECT_NEAR(one.loss, std::log(64), 0.5);
  EXPECT_GT(one.norm, 0.01);
  for (const Cut& cut : {Cut{{.dp = 1}, 1},
                         {{.dp = 2}, 4},
                         {{.dp = 2}, 1},
                         {{.dp = 4, .zero = 2}, 1},
                         {{.dp = 2, .pp = 2, .schedule = "zb-h1"}, 2},
                         {{.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}, 2}}) {
    Result other = step(cut);
    SCOPED_TRACE(fmt::format("dp {} pp {} tp {}, micro-batch {}", cut.mesh.dp, cut.mesh.pp,
                             cut.mesh.tp, cut.micro_batch));
    EXPECT_NEAR(other.loss, one.loss, 1e-6 * one.loss);
    EXPECT_NEAR(other.norm, one.norm, 5e-5 * one.norm);
  }
}

}  // namespace
}  // namespace triax::minigpt
