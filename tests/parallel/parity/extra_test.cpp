// A model of two inputs, nn::Batch::extra: an encoder of ids, and a decoder of features that looks
// at it. Every mesh and mode cuts both alike.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/parallel/data/scatter_gather.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::extra_test {

using namespace test;

constexpr int64_t width = 16, source_time = 5, time = 3;

struct Source : nn::Module {  // [n * source_time, width]
  explicit Source(const TensorParallel& ranks)
      : tp(ranks),
        table(child<nn::Embedding>("table", 11, width,
                                   nn::EmbeddingOptions{.std = 0.5, .shard = tp.whole()})) {}
  Tensor operator()(const Tensor&, const nn::Batch& b) const { return table(b.extra.at(0)); }
  TensorParallel tp;
  nn::Embedding& table;
};

/// Queries are made of batch.input, scaled by a second extra input: [n * time, width].
struct Decoder : nn::Module {
  explicit Decoder(const TensorParallel& ranks)
      : tp(ranks),
        query(child<nn::Linear>("query", width, width, options())),
        key(child<nn::Linear>("key", width, width, options())) {}
  nn::LinearOptions options() const { return {.std = 0.3, .shard = tp.whole()}; }
  Tensor operator()(const Tensor& x, const nn::Batch& b) const {
    int64_t n = b.input.size(0);
    Tensor scaled = b.input * view(b.extra.at(1), {n, 1, 1});
    Tensor q = view(query(view(scaled, {n * time, width})), {-1, 2, width / 2});
    Tensor k = view(key(x), {-1, 2, width / 2}), v = view(x, {-1, 2, width / 2});
    Tensor seen = attention(q, k, v, {.time = time, .key_time = source_time, .causal = false});
    return seen + view(scaled, {n * time, width});
  }
  TensorParallel tp;
  nn::Linear &query, &key;
};

struct TwoInputs : nn::Sequence {
  explicit TwoInputs(const TensorParallel& tp) {
    add<Source>("source", tp);
    add<Block>("encoder", tp);
    add<Decoder>("decoder", tp);
    add<ClassHead>("head", 4, width, tp, VocabularyOptions{.std = 0.3});
  }
};

std::shared_ptr<nn::Samples> samples(int64_t count) {
  NoGrad guard;
  auto floats = [](const Shape& shape, uint64_t key) {
    std::vector<float> v(size_t(shape.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = float(random::normal(key, i));
    return from_host(v, shape, cpu);
  };
  auto ids = [](const Shape& shape, uint64_t key, uint32_t below) {
    std::vector<int32_t> v(size_t(shape.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = int32_t(random::philox(key, i, 0).x % below);
    return from_host(v, shape, cpu);
  };
  return std::make_shared<nn::TensorSamples>(
      floats({count, time, width}, 1), ids({count, time}, 2, 4),
      Tensors{ids({count, source_time}, 3, 11), floats({count}, 4)});
}

Task task() {
  return {.build = [](auto& tp) { return std::make_unique<TwoInputs>(tp); },
          .samples = samples(64),
          .held_out = samples(9)};
}

TEST(ExtraInputs, AnyMeshTrainsTheSame) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{1, 1, 1}, {2, 1, 1}, {1, 3, 1}, {1, 1, 2}, {2, 2, 2}})
    for (int zero : {0, 3})
      for (DType dtype : {f32, bf16, f16}) {
        auto o = tiny_options(mesh);
        o.step.micro_batch = 2, o.step.zero = Zero(zero), o.step.dtype = dtype, o.steps = 2;
        o.step.recompute = ++number % 2 == 0 ? Recompute::block : Recompute::off;
        EXPECT_EQ(difference(task(), o), "")
            << mesh.dp << mesh.pp << mesh.tp << " ZeRO " << zero << " " << name(dtype);
      }
}

TEST(ExtraInputs, BitForBitToo) {
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {2, 2, 1}}) {
    auto o = tiny_options(mesh);
    o.step.bitwise = true, o.step.micro_batch = 4, o.steps = 2;
    EXPECT_EQ(difference(task(), o), "") << mesh.dp << mesh.pp << mesh.tp;
  }
}

TEST(ExtraInputs, AreScatteredAndGatheredWithTheInput) {
  run_worlds(1, [](World& world) {
    Mesh mesh(world.comm(), {});
    TwoInputs model(TensorParallel(mesh.tp()));
    DataParallel data(model, world.comm(), {.seed = 1});
    auto batch = samples(6)->batch(std::vector<int64_t>{0, 1, 2, 3, 4, 5});
    batch.first = 0;
    auto loss = [&](const nn::Batch& b) {
      Tensor x;
      for (auto& layer : model.layers()) x = layer.run(x, b);
      return x;
    };
    NoGrad guard;
    double whole = loss(batch).item();
    double parts = sum(scatter_gather(model, {cpu, cpu}, batch, loss)).item();
    EXPECT_NEAR(parts, whole, 1e-5 * std::abs(whole));
  });
}

struct Short : nn::TensorSamples {
  using TensorSamples::TensorSamples;
  nn::Batch batch(std::span<const int64_t> indices) const override {
    nn::Batch b = TensorSamples::batch(indices);
    b.extra.back() = zeros({1}, f32, cpu);
    return b;
  }
};

TEST(ExtraInputs, CountTheSamples) {
  Task short_task = task();
  auto rows = zeros({8, time, width}, f32, cpu);
  Tensors extra{zeros({8, source_time}, i32, cpu), zeros({8}, f32, cpu)};
  short_task.samples = std::make_shared<Short>(rows, zeros({8, time}, i32, cpu), extra);
  EXPECT_TRUE(refused(outcome(short_task, tiny_options()),
                      "extra [8, 5] i32 on cpu, extra [1] f32 on cpu",
                      "expected dim 0 of each to count them", 65));
  extra.pop_back(), extra.push_back(zeros({7}, f32, cpu));
  expect_data_error(
      [&] {
        nn::TensorSamples(rows, zeros({8, time}, i32, cpu), extra);
      },
      {"extra [8, 5] i32 on cpu, [7] f32 on cpu; expected dim 0 of each to count"});
}

}  // namespace triax::parallel::extra_test
