#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/random.h"
#include "triax/nn/norm.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/linear.h"
#include "triax/parallel/tensor/norm.h"
#include "triax/parallel/train/trainer.h"

/// @file A small classifier and its data, for tests of the trainer.
namespace triax::test {

/// 16 random features; the class is a function of them.
inline std::shared_ptr<nn::Samples> noise(int64_t count = 256, uint64_t key = 3) {
  std::vector<float> x;
  std::vector<int32_t> y;
  for (int64_t i = 0; i < count; ++i) {
    for (uint64_t k = 0; k < 16; ++k)
      x.push_back(float(random::uniform(key, uint64_t(i), k) - 0.5));
    y.push_back(int32_t(i % 4));
  }
  return std::make_shared<nn::TensorSamples>(from_host(x, {count, 16}, cpu),
                                             from_host(y, {count}, cpu));
}

struct Rows : nn::Module {  // of this rank
  explicit Rows(const parallel::TensorParallel& ranks) : tp(ranks) {}
  Tensor operator()(const Tensor& x) const { return tp.scatter_rows(x); }
  parallel::TensorParallel tp;
};

/// norm(x) + down(relu(up(x))).
struct Block : nn::Module {
  explicit Block(const parallel::TensorParallel& tp)
      : norm(child<parallel::LayerNorm>("norm", 16, tp)),
        up(child<parallel::ColumnLinear>("up", 16, 32, tp, Split{.std = 0.3})),
        down(child<parallel::RowLinear>("down", 32, 16, tp, Split{.std = 0.3})) {}
  Tensor operator()(const Tensor& x) const { return x + down(relu(up(norm(x)))); }
  using Split = parallel::SplitLinearOptions;
  parallel::LayerNorm& norm;
  parallel::ColumnLinear& up;
  parallel::RowLinear& down;
};

/// Layers rows, block0, block1, head.
struct TinyNet : nn::Sequence {
  explicit TinyNet(const parallel::TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block0", tp);
    add<Block>("block1", tp);
    add<parallel::ClassHead>("head", 4, 16, tp, parallel::VocabularyOptions{.std = 0.3});
  }
};

template <class Model = TinyNet> parallel::Task task_of() {
  return {.build = [](auto& tp) { return std::make_unique<Model>(tp); },
          .samples = noise(),
          .held_out = noise(50, 4)};
}

/// Micro-batches of 8 in a batch of 16.
inline parallel::TrainOptions tiny_options(parallel::MeshShape mesh = {}) {
  parallel::TrainOptions o;
  o.steps = 3;
  o.step.mesh = mesh;
  o.step.micro_batch = mesh.dp > 1 ? 16 / mesh.dp : 8;
  o.step.global_batch = 16;
  return o;
}

/// What comes of training a few steps, with options that `change` may make others on a rank: empty,
/// or code and text of the Error.
inline std::string outcome(
    const parallel::Task& task, const parallel::TrainOptions& o,
    const std::function<void(parallel::TrainOptions&, int rank)>& change = {}) {
  try {
    parallel::run_worlds(o.step.mesh.size(), [&](parallel::World& world) {
      parallel::TrainOptions mine = o;
      if (change) change(mine, world.rank());
      parallel::Trainer trainer(task, mine, world);
      for (int i = 0; i < 2; ++i) trainer.step();
    });
    return "";
  } catch (const Error& e) {
    return fmt::format("{}: {}", int(e.code()), e.what());
  }
}

/// Is `outcome` Error 78 with a text that holds both parts?
inline testing::AssertionResult refused(const std::string& outcome, const std::string& a,
                                        const std::string& b, int code = 78) {
  bool right = outcome.starts_with(fmt::format("{}: ", code)) && outcome.find(a) != outcome.npos &&
               outcome.find(b) != outcome.npos;
  return (right ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "`" << outcome << "`; expected " << code << " with `" << a << "` and `" << b << "`";
}

}  // namespace triax::test
