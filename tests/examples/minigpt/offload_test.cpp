// Training with optimizer state in the host's memory or in files is training without, on any mesh,
// bit for bit, and its checkpoints are everyone's.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/check.h"
#include "triax/optim/adamw.h"
#include "triax/parallel/checkpoint/directory.h"

namespace triax::minigpt::offload_test {

using optim::Offload;
using parallel::Holder;
using parallel::Offloaded;
using test::TemporaryDirectory;

Job small(const Layout& layout, DType dtype = f32) {
  Job c;
  c.model = {.layers = 4, .heads = 2, .width = 16, .context = 8, .dropout = 0.1, .vocab = 13};
  c.step().micro_batch = 2;
  c.step().global_batch = 8;
  c.step().dtype = dtype;
  c.train.steps = 4;
  c.set(layout);
  return c;
}

/// In many chunks, of which few are in memory.
Offload cut(Offload::To to, const TemporaryDirectory& directory) {
  return {.to = to, .directory = directory.path(), .chunk = 1000, .window = 3};
}

struct Case {
  Job job;
  Offload offload = {};              ///< of the optimizer's state
  std::string load = {}, save = {};  ///< directories of checkpoints; empty: none
};
struct Outcome {
  std::vector<double> losses;
  std::vector<bool> skipped;
  std::map<std::string, std::vector<float>> values;  ///< weights and optimizer state, whole
  bool operator==(const Outcome&) const = default;
};

void add_values(const parallel::Step& step, Outcome& all) {
  for (auto& piece : step.pieces(Holder::any)) {
    auto held = piece.value.storage()->hold(Access::read);
    auto mine = piece.value.to(f32).to_host<float>();
    auto& values = all.values[piece.name + "/" + piece.kind];
    values.resize(size_t(piece.part.full.numel()));
    for_each_overlap({.full = piece.part.full}, piece.part, [&](const parallel::Overlap& o) {
      std::copy_n(mine.begin() + o.from, o.count, values.begin() + o.to);
    });
  }
}

/// Trains on a mesh of threads. In fp16 the gradient of the second step overflows: it is divided by
/// next to nothing.
Outcome run(const Case& given) {
  Job c = given.job;
  optim::AdamWOptions adamw = c.step().adamw;
  adamw.offload = given.offload;
  c.step().optimizer = [adamw](auto& slots) {
    return std::make_unique<optim::AdamW>(slots, adamw);
  };
  parallel::Task task = task_of(c);
  Outcome all;
  std::mutex lock;
  on_mesh(c.step().mesh, [&](parallel::Mesh& mesh) {
    auto& world = mesh.world();
    parallel::Step step(mesh, task.build, c.step(), facts_of(task, c.step()));
    auto feed = feed_of(task, c.step(), mesh);
    if (!given.load.empty()) {
      auto checkpoint = parallel::CheckpointDirectory(given.load, world).resume("auto");
      step.restore([&](auto& pieces) { checkpoint->load(pieces); }, checkpoint->state());
    }
    for (int64_t number = 1; number <= c.train.steps; ++number) {
      bool overflows = c.step().dtype == f16 && number == 2;
      step.take({.number = number,
                 .batches = [&, number](int64_t micro) { return feed.at(number, micro); },
                 .weight = overflows ? 1e-24 : feed.weight(number),
                 .lr = 1e-2});
      auto result = step.results(parallel::Step::Await::all).back();
      if (world.rank() > 0) continue;
      all.losses.push_back(result.loss);
      all.skipped.push_back(result.skipped);
    }
    if (!given.save.empty())
      parallel::CheckpointDirectory(given.save, world)
          .save(c.train.steps, step.pieces(Holder::owner), step.state());
    std::lock_guard guard(lock);
    add_values(step, all);
  });
  return all;
}

TEST(Offloading, ChangesNoBitOnAnyMesh) {
  TemporaryDirectory directory;
  const Layout layouts[] = {{.dp = 1},
                            {.dp = 2, .zero = 1},
                            {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 2},
                            {.dp = 2, .pp = 2, .zero = 3},
                            {.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "zb-h1"}};
  for (auto& layout : layouts)
    for (DType dtype : {f32, bf16, f16}) {
      SCOPED_TRACE(fmt::format("{}, {}", describe(layout), dtype));
      Job c = small(layout, dtype);
      Outcome off = run({c}), host = run({c, cut(Offload::To::host, directory)}),
              file = run({c, cut(Offload::To::file, directory)});
      EXPECT_EQ(off.skipped, (std::vector{false, dtype == f16, false, false}));
      EXPECT_EQ(off.values.contains("tokens.table/master"), dtype != f32);
      EXPECT_TRUE(host == off);
      EXPECT_TRUE(file == off);
    }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Offloading, OfWeightsChangesNoBit) {
  TemporaryDirectory directory;
  const Layout layouts[] = {{.dp = 1, .zero = 3},
                            {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3},
                            {.dp = 2, .pp = 2, .zero = 3, .schedule = "zb-h1"},
                            {.dp = 2, .pp = 2, .zero = 3, .schedule = "interleaved"}};
  for (auto& layout : layouts)
    for (DType dtype : {f32, bf16, f16}) {
      SCOPED_TRACE(fmt::format("{}, {}", describe(layout), dtype));
      Job c = small(layout, dtype);
      Outcome off = run({c});
      c.step().offload = Offloaded::parameters;
      EXPECT_TRUE(run({c, cut(Offload::To::host, directory)}) == off);
      c.step().offload_dir = directory.path();
      EXPECT_TRUE(run({c, cut(Offload::To::file, directory)}) == off);
      c.step().recompute = parallel::Recompute::block;
      EXPECT_TRUE(run({c, cut(Offload::To::off, directory)}) == off);
      c.step().offload = Offloaded::nothing;
      c.step().places = {{"embedding", Offload::To::host},
                         {"block1", Offload::To::host},
                         {"block2", Offload::To::file},
                         {"head", Offload::To::file}};
      EXPECT_TRUE(run({c, cut(Offload::To::off, directory)}) == off) << "of some layers";
    }
}

TEST(Offloading, CheckpointsAreEveryones) {
  TemporaryDirectory directory;
  const Layout here{.dp = 2, .pp = 2, .zero = 1}, there{.dp = 2, .tp = 2, .zero = 3};
  for (DType dtype : {f32, bf16}) {
    Job first = small(here, dtype), second = small(there, dtype);
    std::map<std::string, Outcome> ends;
    for (auto from : {Offload::To::off, Offload::To::file})
      for (auto to : {Offload::To::off, Offload::To::host, Offload::To::file}) {
        std::string path = directory / fmt::format("{}-{}-{}", dtype, int(from), int(to));
        Outcome saved = run({first, cut(from, directory), {}, path});
        Job look = second;
        look.train.steps = 0;
        Outcome loaded = run({look, cut(to, directory), path});
        EXPECT_TRUE(loaded.values == saved.values) << path;
        ends[path] = run({second, cut(to, directory), path});
      }
    for (auto& [path, end] : ends) EXPECT_TRUE(end == ends.begin()->second) << path;
  }
}

TEST(Offloading, IsForeseen) {
  TemporaryDirectory directory;
  struct Row {
    Offloaded offload;
    std::string directory = {};
  };
  for (const auto& [offload, to] :
       {Row{Offloaded::nothing}, Row{Offloaded::optimizer},
        Row{Offloaded::optimizer, directory.path()}, Row{Offloaded::parameters},
        Row{Offloaded::parameters, directory.path()}})
    for (int zero : {0, 1, 3}) {
      if (offload == Offloaded::parameters && zero < 3) continue;
      SCOPED_TRACE(fmt::format("offload {} to `{}`, ZeRO {}", int(offload), to, zero));
      Job c = small({.dp = 2, .pp = 2, .zero = zero}, bf16);
      c.step().offload = offload, c.step().offload_dir = to;
      parallel::Task task = task_of(c);
      auto like = batch_like(task, c.step().micro_batch);
      auto foreseen = foresee(task.build, like, c.step()),
           found = measure(task.build, like, c.step());
      for (size_t s = 0; s < found.size(); ++s) {
        // A message that its receiver has not taken yet is memory too.
        EXPECT_NEAR(double(foreseen[s].peak), double(found[s].peak), 0.05 * double(found[s].peak));
        for (auto kind : {memory::optimizer, memory::buffers, memory::offloaded})
          EXPECT_EQ(foreseen[s].peaks[kind], found[s].peaks[kind]);
        bool off = offload == Offloaded::nothing;
        EXPECT_EQ(found[s].peaks[memory::optimizer] == 0, !off);
        EXPECT_EQ(found[s].peaks[memory::offloaded] == 0, off);
      }
    }
}

}  // namespace triax::minigpt::offload_test
