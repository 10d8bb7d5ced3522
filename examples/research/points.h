#pragma once
// What the programs of this folder train: points in the plane, classified by a stack of blocks.
#include <cmath>

#include "triax/core/random.h"
#include "triax/parallel/program/program.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/linear.h"

/// Points of a disc; the class is the quarter that they lie in, behind a twist.
inline std::shared_ptr<triax::nn::Samples> points(int64_t count, uint64_t key) {
  using namespace triax;
  std::vector<float> places;
  std::vector<int32_t> classes;
  for (uint64_t i = 0; i < uint64_t(count); ++i) {
    double turn = random::uniform(key, i, 0), radius = random::uniform(key, i, 1);
    places.push_back(float(radius * std::cos(2 * M_PI * turn)));
    places.push_back(float(radius * std::sin(2 * M_PI * turn)));
    classes.push_back(int32_t(4 * (turn + radius)) % 4);
  }
  return std::make_shared<nn::TensorSamples>(from_host(places, {count, 2}, cpu),
                                             from_host(classes, {count}, cpu));
}

/// x + down(relu(up(x))), its hidden features split over tensor-parallel ranks.
struct Block : triax::nn::Module {
  Block(int64_t width, const triax::parallel::TensorParallel& tp)
      : up(child<triax::parallel::ColumnLinear>("up", width, 4 * width, tp, Options{.std = 0.2})),
        down(child<triax::parallel::RowLinear>("down", 4 * width, width, tp, Options{.std = 0.1})) {
  }
  triax::Tensor operator()(const triax::Tensor& x) const { return x + down(relu(up(x))); }
  using Options = triax::parallel::SplitLinearOptions;
  triax::parallel::ColumnLinear& up;
  triax::parallel::RowLinear& down;
};

/// Eight blocks `B(width, tp)` between the points and their classes.
template <class B> struct Stack : triax::nn::Sequence {
  explicit Stack(const triax::parallel::TensorParallel& tp) {
    add("rows", {}, [tp](const triax::Tensor& x) { return tp.scatter_rows(x); });
    add<triax::nn::Linear>("widen", 2, 16, triax::nn::LinearOptions{.std = 1, .shard = tp.whole()});
    for (int i = 0; i < 8; ++i) add<B>("block" + std::to_string(i), 16, tp);
    add<triax::parallel::ClassHead>("head", 4, 16, tp);
  }
};

/// A program that trains such a stack; what is tried is added to it.
template <class B = Block>
triax::parallel::ProgramOptions program_of(const char* name, const char* what) {
  triax::parallel::ProgramOptions o;
  o.name = name, o.what = what;
  o.train.steps = 20;
  o.train.step.micro_batch = 4, o.train.step.global_batch = 64;
  o.task = [] {
    return triax::parallel::Task{.build = [](auto& tp) { return std::make_unique<Stack<B>>(tp); },
                                 .samples = points(2000, 1),
                                 .held_out = points(200, 2)};
  };
  return o;
}
