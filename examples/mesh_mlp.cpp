// A model and a data set of one's own on any mesh:
//   mesh_mlp train --comm threads --ranks 8 --pp 2 --tp 2 --zero 1
//   mesh_mlp parity --mesh 2x2x2
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/random.h"
#include "parallel/program/program.h"
#include "parallel/tensor/embedding.h"
#include "parallel/tensor/linear.h"

using namespace triax;
using parallel::TensorParallel;

/// Points on a ring; the class is the sector they lie in, between wavy borders.
struct Points : nn::Samples {
  Points(int64_t count, uint64_t key) : count_(count), key_(key) {}
  int64_t count() const override { return count_; }
  nn::Batch batch(std::span<const int64_t> indices) const override {
    std::vector<float> points;
    std::vector<int32_t> sectors;
    for (int64_t i : indices) {
      double turn = random::uniform(key_, uint64_t(i), 0),
             radius = 1 + random::uniform(key_, uint64_t(i), 1);
      double angle = 2 * std::numbers::pi * turn;
      points.push_back(float(radius * std::cos(angle)));
      points.push_back(float(radius * std::sin(angle)));
      sectors.push_back(i < 0 ? -1 : int32_t(5 * turn + 0.2 * std::sin(5 * radius) + 5) % 5);
    }
    int64_t n = std::ssize(indices);
    return {from_host(points, {n, 2}, cpu), from_host(sectors, {n}, cpu)};
  }
  std::string identity() const override { return fmt::format("ring {} {}", count_, key_); }
  int64_t count_;
  uint64_t key_;
};

using Split = parallel::SplitLinearOptions;

struct Up : nn::Module {  // into the stretch that tensor-parallel ranks split
  explicit Up(const TensorParallel& ranks)
      : tp(ranks),
        linear(child<parallel::ColumnLinear>("linear", 2, 64, ranks, Split{.std = 0.5})) {}
  Tensor operator()(const Tensor& x) const { return relu(linear(tp.scatter_rows(x))); }
  TensorParallel tp;
  parallel::ColumnLinear& linear;
};

struct Down : nn::Module {  // and out of it
  explicit Down(const TensorParallel& tp)
      : linear(child<parallel::RowLinear>("linear", 64, 32, tp, Split{.std = 0.2})) {}
  Tensor operator()(const Tensor& x) const { return relu(linear(x)); }
  parallel::RowLinear& linear;
};

struct Mlp : nn::Sequence {
  explicit Mlp(const TensorParallel& tp) {
    add<Up>("up", tp);
    add<Down>("down", tp);
    add<parallel::ClassHead>("head", 5, 32, tp, parallel::VocabularyOptions{.std = 0.2});
  }
};

int main(int argc, char** argv) {
  parallel::TrainOptions train;
  train.steps = 200, train.lr.peak = 1e-2;
  train.step.micro_batch = 8, train.step.global_batch = 64;
  parallel::Task task{.build = [](auto& tp) { return std::make_unique<Mlp>(tp); },
                      .samples = std::make_shared<Points>(4000, 1),
                      .held_out = std::make_shared<Points>(500, 2)};
  return parallel::program(
      argc, argv,
      {.name = "mesh_mlp", .what = "Trains a classifier of points.", .train = train, .task = [&] {
         return task;
       }});
}
