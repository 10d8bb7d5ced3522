// What a pass on the meta device knows of a model: work, shapes at every cut, and where to cut.
#include "parallel/train/probe.h"

#include <gtest/gtest.h>

#include "core/memory.h"
#include "parallel/train/replica.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

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
  test::expect_error([&] { place(facts_of(build_of<test::TinyNet>()), o); },
                     {"layer block0: recompute=block-split: tp=3 does not divide the 128 elements",
                      "--micro-batch"},
                     Exit::config);
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

}  // namespace
}  // namespace triax::parallel
