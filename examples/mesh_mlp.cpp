// A model and a data set of one's own on any mesh:
//   mesh_mlp train --comm threads --ranks 8 --pp 2 --tp 2 --zero 1
//   mesh_mlp parity --mesh 2x2x2
#include <cmath>
#include <numbers>

#include "triax/core/random.h"
#include "triax/parallel/program/program.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/linear.h"

using namespace triax;

/// Points on a ring; the class is the sector they lie in, between wavy borders.
std::shared_ptr<nn::Samples> ring(int64_t count, uint64_t key) {
  std::vector<float> points;
  std::vector<int32_t> sectors;
  for (uint64_t i = 0; i < uint64_t(count); ++i) {
    double turn = random::uniform(key, i, 0), radius = 1 + random::uniform(key, i, 1);
    points.push_back(float(radius * std::cos(2 * std::numbers::pi * turn)));
    points.push_back(float(radius * std::sin(2 * std::numbers::pi * turn)));
    sectors.push_back(int32_t(5 * turn + 0.2 * std::sin(5 * radius) + 5) % 5);
  }
  return std::make_shared<nn::TensorSamples>(from_host(points, {count, 2}, cpu),
                                             from_host(sectors, {count}, cpu));
}

struct Hidden : nn::Module {  // features between up and down are split over tensor-parallel ranks
  using Options = parallel::SplitLinearOptions;
  Hidden(int64_t in, const parallel::TensorParallel& tp)
      : up(child<parallel::ColumnLinear>("up", in, 64, tp, Options{.std = 0.3})),
        down(child<parallel::RowLinear>("down", 64, 32, tp, Options{.std = 0.2})) {}
  Tensor operator()(const Tensor& x) const { return relu(down(relu(up(x)))); }
  parallel::ColumnLinear& up;
  parallel::RowLinear& down;
};

struct Mlp : nn::Sequence {
  explicit Mlp(const parallel::TensorParallel& tp) {
    add("rows", {}, [tp](const Tensor& x) { return tp.scatter_rows(x); });
    add<Hidden>("hidden0", 2, tp);
    add<Hidden>("hidden1", 32, tp);
    add<parallel::ClassHead>("head", 5, 32, tp);
  }
};

int main(int argc, char** argv) {
  parallel::ProgramOptions o{.name = "mesh_mlp", .what = "Trains a classifier of points."};
  o.train.steps = 200, o.train.lr.peak = 1e-2;
  o.train.step.micro_batch = 8, o.train.step.global_batch = 64;
  o.task = [] {
    return parallel::Task{.build = [](auto& tp) { return std::make_unique<Mlp>(tp); },
                          .samples = ring(4000, 1),
                          .held_out = ring(500, 2)};
  };
  return parallel::program(argc, argv, o);
}
