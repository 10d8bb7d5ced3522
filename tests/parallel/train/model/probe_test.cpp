// What a pass on the meta device knows of a model: work, shapes at every cut, and where to cut.
#include "triax/parallel/train/model/probe.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/core/memory.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/train/model/by_sample.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel::probe_test {

/// Layers of very different widths.
struct Funnel : nn::Sequence {
  explicit Funnel(const TensorParallel& tp) {
    int64_t widths[] = {16, 256, 256, 32, 8};
    for (int i = 0; i < 4; ++i)
      add<nn::Linear>("layer" + std::to_string(i), widths[i], widths[i + 1],
                      nn::LinearOptions{.shard = tp.whole()});
    add<ClassHead>("head", 4, 8, tp);
  }
};

Facts facts_of(const Build& build, const ProbeOptions& o = {}) {
  return probe(build, batch_like(test::task_of(), 8), o);
}
template <class Model> Build build_of() {
  return [](auto& tp) { return std::make_unique<Model>(tp); };
}

TEST(Probe, ShapesAtEveryCut) {
  Facts facts = facts_of(build_of<Funnel>());
  std::vector<Shape> shapes;
  for (auto& layer : facts.layers()) shapes.push_back(layer.out.shape);
  EXPECT_EQ(shapes, (std::vector<Shape>{{8, 256}, {8, 256}, {8, 32}, {8, 8}, {}}));
  EXPECT_EQ(facts.samples(), 8);
  EXPECT_EQ(facts.rows_of_sample(), 1);
  EXPECT_NE(facts.parameters().find("layer1.weight [256, 256]"), std::string::npos)
      << facts.parameters();
}

TEST(Probe, RowsOfSequenceParallelRanks) {
  Facts facts = facts_of(build_of<test::TinyNet>(), {.tp = 2, .sequence_parallel = true});
  EXPECT_EQ(facts.of("block0").out.shape, (Shape{4, 16}));
  EXPECT_EQ(facts.rows_of_sample(), 1);
}

TEST(Probe, CountsTheWorkOfProducts) {
  Facts facts = facts_of(build_of<Funnel>());
  EXPECT_EQ(facts.of("layer1").forward.products, 2. * 8 * 256 * 256);
  EXPECT_EQ(facts.of("layer1").backward.products, 4. * 8 * 256 * 256);  // input and weight
}

/// x + down(gelu(up(x))).
struct Gelu : nn::Module {
  explicit Gelu(const TensorParallel& tp)
      : up(child<ColumnLinear>("up", 16, 32, tp)), down(child<RowLinear>("down", 32, 16, tp)) {}
  Tensor operator()(const Tensor& x) const { return down.onto(x, up.gelu(x)); }
  ColumnLinear& up;
  RowLinear& down;
};

struct Deep : nn::Sequence {
  explicit Deep(const TensorParallel& tp) {
    add<nn::Linear>("in", 16, 16, nn::LinearOptions{.shard = tp.whole()});
    add<test::Block>("block0", tp);
    add<Gelu>("gelu", tp);
    add<ClassHead>("head", 4, 16, tp);
  }
};

// Cut into layers, a model does what it does in one piece.
TEST(Probe, LayersAddUpToTheModel) {
  for (DType dtype : {f32, bf16}) {
    Build build = build_of<Deep>();
    Facts facts = facts_of(build, {.dtype = dtype});
    MetaComm alone(1, 0);
    auto model = build(TensorParallel(alone));
    model->materialize(meta_device, dtype, 0);
    nn::Batch batch = nn::to(batch_like(test::task_of(), 8), meta_device, dtype);
    batch.loss.seed = full({}, 1, f32, meta_device);
    KernelWork start = meta_work();
    Tensor y;
    for (auto& layer : model->layers()) y = layer.run(y, batch);
    backward(y, zeros(y.shape(), y.dtype(), meta_device));
    KernelWork whole = meta_work() - start;
    whole.bytes -= double(y.bytes()), --whole.kernels;  // of the seed
    auto sum = [&](auto of) {
      decltype(of(whole)) all = 0;
      for (auto& layer : facts.layers()) all += of(layer.forward) + of(layer.backward);
      return all;
    };
    auto expect_equal = [&](auto of) { EXPECT_EQ(of(whole), sum(of)) << name(dtype); };
    expect_equal([](const KernelWork& w) { return w.products; });
    expect_equal([](const KernelWork& w) { return w.bytes; });
    expect_equal([](const KernelWork& w) { return w.kernels; });
    expect_equal([](const KernelWork& w) { return w.matmuls; });
    expect_equal([](const KernelWork& w) { return w.fused_bytes; });
    EXPECT_NE(whole.fused_bytes, 0);
  }
}

// It runs the whole model on a device without bytes: a rank that has a quarter of it holds less.
TEST(Probe, IsNoMemoryOfTheRank) {
  nn::Batch batch = batch_like(test::task_of(), 8);
  memory::counter()->reset_peaks();
  int64_t live = memory::counter()->live();
  probe(build_of<Funnel>(), batch, {});
  EXPECT_EQ(memory::counter()->peak(), live);
}

TEST(Probe, StagesAreBalancedByIt) {
  StepOptions o;
  o.mesh = {.pp = 2}, o.chunks = 1, o.micro_batch = o.global_batch = 8;
  auto counts = place(facts_of(build_of<Funnel>()), o);
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 3}));  // the widest layer is the second
}

TEST(Probe, NamesTheLayerWhoseInputCannotBeSharded) {
  StepOptions o;
  o.mesh = {.tp = 3}, o.recompute = Recompute::block_split;
  test::expect_config_error(
      [&] { place(facts_of(build_of<test::TinyNet>()), o); },
      {"layer block0: recompute=block-split: tp=3 does not divide the 128 elements",
       "--micro-batch"});
}

TEST(Probe, NamesTheLayerThatCannotRun) {
  struct Wrong : nn::Sequence {
    explicit Wrong(const TensorParallel& tp) {
      add<nn::Linear>("narrow", 16, 8, nn::LinearOptions{.shard = tp.whole()});
      add<nn::Linear>("wide", 9, 8, nn::LinearOptions{.shard = tp.whole()});
    }
  };
  try {
    facts_of(build_of<Wrong>());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    EXPECT_TRUE(std::string(e.what()).starts_with("layer wide of [8, 8]")) << e.what();
  }
}

TEST(BySample, AnIndependentLayerReturnsRowsOfEachSample) {
  nn::Layer total{.name = "total", .run = [](const Tensor& x, const nn::Batch&) { return sum(x); }};
  nn::Batch batch{.input = zeros({2, 4}, f32, cpu)};
  Tensor x = zeros({2 * Matmul::block, 3}, f32, cpu);
  EXPECT_EQ(by_sample(total, nn::input_shapes(batch)).run(x, batch).shape(), Shape{2});
  total.independent = true;
  test::expect_config_error(
      [&] { by_sample(total, nn::input_shapes(batch)).run(x, batch); },
      {"of 2 samples; expected rows of each", "independent", "--micro-batch 1"});
  Tensor few = zeros({2 * Matmul::block - 2, 3}, f32, cpu);  // so it sees one after the other
  EXPECT_EQ(by_sample(total, nn::input_shapes(batch)).run(few, batch).shape(), Shape{2});
}

TEST(BySample, TrainingBatchesHaveOneShape) {
  nn::Layer twice{.name = "twice", .run = [](auto&, auto& b) { return b.input * 2.; }};
  nn::Layer layer = by_sample(twice, {Shape{2, 4}});
  auto run = [&](const Shape& shape, int64_t first) {
    layer.run({}, {.input = zeros(shape, f32, cpu), .first = first});
  };
  run({2, 4}, 2);
  test::expect_data_error(
      [&] {
        run({2, 5}, 4);
      },
      {"bitwise: a batch has input [2, 5], the first samples have [2, 4]", "Pad all samples",
       "--micro-batch 1"});
  run({1, 5}, 4);  // alone, nothing is padded
  run({2, 5}, nn::evaluation);
}

}  // namespace triax::parallel::probe_test
