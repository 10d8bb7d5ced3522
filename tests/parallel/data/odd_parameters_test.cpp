// correctness 16: parameters of no, one, 63, 65, a prime number of elements, cut over ranks that
// divide none of them, train as on one rank, with every stage of ZeRO.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "optim/adamw.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/data/data_parallel.h"
#include "tests/support/tensors.h"

namespace triax::parallel {
namespace {

using test::values;

/// x [1] to what its three parameters make of it.
struct Odd : nn::Module {
  explicit Odd(int64_t size)
      : a(parameter({.name = "a", .full = {size}, .init = {.std = 0.5}, .decay = true})),
        one(parameter({.name = "one", .full = {1}, .init = {.std = 0.5}})),
        b(parameter({.name = "b", .full = {size}, .init = {.std = 0.5}, .decay = true})) {}
  Tensor operator()(const Tensor& x) const {
    return x * one + (sum(tanh(a * x)) + sum(gelu(b * x))) * 0.1;
  }
  nn::Parameter &a, &one, &b;
};

struct Model : nn::Module {
  Odd& none = child<Odd>("none", 0);
  Odd& single = child<Odd>("single", 1);
  Odd& below = child<Odd>("below", 63);
  Odd& above = child<Odd>("above", 65);
  Odd& prime = child<Odd>("prime", 127);
  nn::Layers layers() {
    nn::Layers all;
    for (Odd* m : {&none, &single, &below, &above, &prime})
      all.push_back({"odd", {m}, [m](const Tensor& x, const nn::Batch& batch) {
                       return (*m)(x.defined() ? x : batch.input);
                     }});
    return all;
  }
};

struct Result {
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> weights;
};

constexpr int64_t batch = 12;  // samples: 1 to 4 ranks divide them

Result train(int ranks, Zero zero, const BucketSizes& buckets) {
  Result result;
  std::mutex lock;
  run_ranks(ranks, [&](Communicator& world) {
    Mesh mesh(world, {.dp = ranks});
    Model model;
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh, {.seed = 3, .zero = zero, .buckets = buckets});
    EXPECT_EQ(data.parameter_count(), 5 + 2 * (0 + 1 + 63 + 65 + 127));
    optim::AdamW adam(data.slots(), {.eps = 1e-4, .weight_decay = 0.5});
    std::vector<double> norms;
    for (int step = 0; step < 4; ++step) {
      Tensor samples = test::filled({batch}, 100 + uint64_t(step), f32, 1);
      data.begin(batch / ranks);
      for (int64_t at = world.rank(); at < batch; at += ranks) {
        Tensor x;
        for (auto& layer : chunks[0]) x = layer.run(x, {.input = samples.narrow(0, at, 1)});
        backward(x, full({1}, 1.0 / batch, f32, cpu));
      }
      data.finish();
      norms.push_back(data.norm().value);
      adam.step(1e-2);
      data.publish();
    }
    auto hold = data.gather_all();
    std::lock_guard guard(lock);
    for (auto* p : model.parameters()) {
      auto [at, first] = result.weights.emplace(p->name, values(p->value));
      EXPECT_EQ(at->second, values(p->value)) << p->name << " differs on rank " << world.rank();
    }
    result.norms = norms;
  });
  return result;
}

TEST(OddParameters, TrainAsOnOneRank) {
  Result one = train(1, Zero::off, {});
  for (int ranks : {2, 3, 4})
    for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters})
      for (int64_t elements : {1, 100, 1 << 20}) {
        SCOPED_TRACE(fmt::format("{} ranks, zero {}, buckets of {}", ranks, int(zero), elements));
        Result other = train(ranks, zero, {.first = elements, .other = elements});
        for (size_t i = 0; i < one.norms.size(); ++i)
          EXPECT_NEAR(other.norms[i], one.norms[i], 5e-5 * one.norms[i]) << "step " << i;
        for (auto& [name, w] : one.weights)
          for (size_t i = 0; i < w.size(); ++i)
            ASSERT_NEAR(other.weights.at(name)[i], w[i], 2e-5) << name << " at " << i;
      }
}

}  // namespace
}  // namespace triax::parallel
