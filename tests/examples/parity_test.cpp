// Any number of ranks trains the same GPT: loss and gradient norm of every step, and the weights at
// the end, equal those of one rank, with dropout. correctness 1, 2, 7, 21, 30, 41, 42.
#include <fmt/format.h>

#include <mutex>

#include "autograd/backward.h"
#include "examples/minigpt/model.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/data/data_parallel.h"
#include "parallel/data/sampler.h"
#include "tests/support/tensors.h"

namespace triax::minigpt {
namespace {

using test::values;

constexpr int64_t samples_per_step = 12, steps = 20;
constexpr auto sum_of_rows = CrossEntropyOptions::Reduction::sum;

struct Setup {
  int ranks = 1;
  int64_t micro_batch = samples_per_step;
  bool ragged = false;  // some targets count nothing, unevenly over the samples
  float dropout = 0.1f;
  parallel::BucketSizes buckets = {.first = 500, .other = 3000};
};

struct Result {
  std::vector<double> loss, norm;
  std::vector<std::pair<std::string, std::vector<double>>> weights;
};

struct Sample {
  std::vector<int32_t> ids, targets;
};

Sample make_sample(int64_t index, const ModelConfig& m, bool ragged) {
  Sample s;
  for (int64_t t = 0; t < m.context; ++t) {
    auto id = int32_t(random::philox(99, uint64_t(index), uint64_t(t)).x % uint32_t(m.vocab));
    s.ids.push_back(id);
    bool counts = !ragged || (index % 3 != 0 && t > index % 5);
    s.targets.push_back(counts ? int32_t((id * 3 + 1 + t) % m.vocab) : -1);
  }
  return s;
}

Result train(const Setup& o) {
  Result result;
  std::mutex lock;
  parallel::run_ranks(o.ranks, [&](parallel::Communicator& world) {
    ModelConfig m{
        .layers = 2, .heads = 4, .width = 32, .context = 8, .dropout = o.dropout, .vocab = 13};
    Gpt model(m);
    parallel::DataParallel data(model, world, {.seed = 5, .buckets = o.buckets});
    optim::AdamW adam(data.slots(), {.eps = 1e-6});
    parallel::Sampler order(100, 5);
    int64_t micros = samples_per_step / (o.micro_batch * o.ranks);
    for (int64_t step = 0; step < steps; ++step) {
      double loss = 0, counted = 0;
      for (int64_t i = 0; i < samples_per_step; ++i)
        for (int32_t t : make_sample(order.at(step * samples_per_step + i), m, o.ragged).targets)
          counted += t >= 0;
      data.begin(micros);
      for (int64_t micro = 0; micro < micros; ++micro) {
        int64_t first = step * samples_per_step + (micro * o.ranks + world.rank()) * o.micro_batch;
        Sample all;
        for (int64_t i = 0; i < o.micro_batch; ++i) {
          Sample s = make_sample(order.at(first + i), m, o.ragged);
          all.ids.insert(all.ids.end(), s.ids.begin(), s.ids.end());
          all.targets.insert(all.targets.end(), s.targets.begin(), s.targets.end());
        }
        Shape tokens{int64_t(all.ids.size())};
        Tensor logits = model.logits(from_host(all.ids, tokens, cpu), m.context, first * m.context);
        Tensor l = cross_entropy(std::move(logits), from_host(all.targets, tokens, cpu),
                                 {.reduction = sum_of_rows});
        loss += l.item();
        backward(l, full({}, 1 / counted, f32, cpu));
      }
      data.finish();
      Tensor total = from_host(std::vector<double>{loss / counted}, {1}, cpu);
      world.all_reduce(total).wait();
      double norm = data.norm().value;
      adam.step(1e-3, optim::clip_factor(norm, 1));
      if (world.rank() == 0) {
        result.loss.push_back(total.item());
        result.norm.push_back(norm);
      }
    }
    std::vector<std::pair<std::string, std::vector<double>>> weights;
    for (auto* p : model.parameters()) weights.emplace_back(p->name, values(p->value));
    std::lock_guard guard(lock);
    if (result.weights.empty()) result.weights = weights;
    EXPECT_EQ(result.weights, weights) << "replicas differ on rank " << world.rank();
  });
  EXPECT_EQ(autograd::live_nodes(), 0);
  return result;
}

void expect_same(const Result& a, const Result& b) {
  ASSERT_EQ(a.loss.size(), b.loss.size());
  for (size_t i = 0; i < a.loss.size(); ++i) {
    EXPECT_NEAR(a.loss[i], b.loss[i], 1e-6 * a.loss[i]) << "loss, step " << i + 1;
    EXPECT_NEAR(a.norm[i], b.norm[i], 5e-5 * a.norm[i]) << "gradient norm, step " << i + 1;
  }
  for (size_t p = 0; p < a.weights.size(); ++p) {
    // The key bias has no gradient but rounding, which AdamW turns into steps.
    if (a.weights[p].first.ends_with("qkv.bias")) continue;
    for (size_t i = 0; i < a.weights[p].second.size(); ++i)
      ASSERT_NEAR(a.weights[p].second[i], b.weights[p].second[i], 2e-5) << a.weights[p].first;
  }
}

TEST(ParityTest, AnyCutOfTheBatchTrainsTheSameModel) {
  for (bool ragged : {false, true}) {
    Result one = train({.ragged = ragged});
    for (auto [ranks, micro] : std::vector<std::pair<int, int64_t>>{
             {1, 6}, {1, 1}, {2, 6}, {2, 3}, {2, 1}, {3, 4}, {3, 2}, {4, 3}, {4, 1}, {6, 2}}) {
      SCOPED_TRACE(fmt::format("dp {}, micro-batch {}, ragged {}", ranks, micro, ragged));
      expect_same(one, train({.ranks = ranks, .micro_batch = micro, .ragged = ragged}));
    }
  }
}

// Bitwise, but for the order in which the norm adds up its buckets.
TEST(ParityTest, BucketSizesDoNotMatter) {
  Result a = train({.ranks = 2, .micro_batch = 3});
  for (int64_t size : {1, 1 << 20}) {
    Result b = train({.ranks = 2, .micro_batch = 3, .buckets = {.first = size, .other = size}});
    EXPECT_EQ(a.loss, b.loss);
    for (size_t i = 0; i < a.norm.size(); ++i) EXPECT_NEAR(a.norm[i], b.norm[i], 1e-12 * a.norm[i]);
    EXPECT_EQ(a.weights, b.weights);
  }
}

// What parity cannot see is wrong alike everywhere: two steps must draw different masks.
TEST(ParityTest, DropoutIsAtWorkAndChangesWithTheStep) {
  Result with = train({}), without = train({.dropout = 0});
  EXPECT_NE(with.loss[0], without.loss[0]);
  ModelConfig m{.layers = 1, .heads = 2, .width = 8, .context = 4, .dropout = 0.5, .vocab = 5};
  Gpt model(m);
  model.materialize(cpu, f32, 1);
  NoGrad guard;
  Tensor ids = zeros({8}, i32, cpu);
  auto at = [&](int64_t first) { return values(model.logits(ids, 4, first)); };
  EXPECT_NE(at(0), at(8));
  EXPECT_EQ(at(8), at(8));
  EXPECT_NE(at(0), at(nn::evaluation));
}

// correctness 35: the second step costs no more memory than the third, and leaves nothing behind.
TEST(ParityTest, MemoryIsConstant) {
  parallel::run_ranks(1, [](parallel::Communicator& world) {
    ModelConfig m{.layers = 2, .heads = 2, .width = 16, .context = 8, .dropout = 0.1, .vocab = 13};
    Gpt model(m);
    parallel::DataParallel data(model, world, {});
    optim::AdamW adam(data.slots(), {});
    int64_t live = 0, peak = 0;
    for (int step = 0; step < 8; ++step) {
      memory::counter()->reset_peaks();
      data.begin();
      Tensor ids = zeros({16}, i32, cpu);
      backward(cross_entropy(model.logits(ids, 8, step * 16), ids));
      data.finish();
      adam.step(1e-3);
      EXPECT_EQ(autograd::live_nodes(), int64_t(model.parameters().size()));  // the leaves
      if (step == 2) live = memory::counter()->live(), peak = memory::counter()->peak();
      if (step < 3) continue;
      EXPECT_EQ(memory::counter()->live(), live);
      EXPECT_EQ(memory::counter()->peak(), peak);
    }
  });
}

}  // namespace
}  // namespace triax::minigpt
