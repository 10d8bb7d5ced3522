// Training with optimizer state in the host's memory or in files is training without, on any mesh,
// bit for bit, and its checkpoints are everyone's.
#include "examples/minigpt/offload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "examples/minigpt/feed.h"
#include "examples/minigpt/pieces.h"
#include "examples/minigpt/rehearsal.h"
#include "examples/minigpt/replica.h"
#include "optim/schedule.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/comm/together.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

using optim::Offload;
using test::TemporaryDirectory;

std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

TrainConfig small(const MeshConfig& mesh, const std::string& precision = "fp32") {
  TrainConfig c{.data = "text"};
  c.model = {.layers = 4, .heads = 2, .width = 16, .context = 8, .dropout = 0.1, .vocab = 13};
  c.micro_batch = 2;
  c.global_batch = 8;
  c.steps = 4;
  c.warmup = 0;
  c.precision = precision;
  c.mesh = mesh;
  return c;
}

/// In many chunks, of which few are in memory.
Offload cut(Offload::To to, const TemporaryDirectory& directory) {
  return {.to = to, .directory = directory.path(), .chunk = 1000, .window = 3};
}

struct Job {
  TrainConfig config;
  Offload offload = {};
  std::string load = {}, save = {};  ///< directories of checkpoints; empty: none
};
struct Outcome {
  std::vector<double> losses;  ///< the sum over all tokens of each step
  std::vector<bool> skipped;
  std::map<std::string, std::vector<float>> values;  ///< weights and optimizer state, whole
  bool operator==(const Outcome&) const = default;
};

/// Train on a mesh of threads; in the second step the loss scale is so large that fp16 overflows.
Outcome run(const Job& job) {
  const TrainConfig& c = job.config;
  const MeshConfig& m = c.mesh;
  TextData text(some_text(), Tokenizer::from_text(some_text(), "text"),
                {.context = c.model.context, .name = "text"});
  Outcome all{.losses = std::vector<double>(size_t(c.steps)),
              .skipped = std::vector<bool>(size_t(c.steps))};
  std::mutex lock;
  parallel::run_ranks(int(m.dp * m.pp * m.tp), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Replica replica(c, mesh);
    Feed feed(c, text, mesh.dp());
    optim::AdamWOptions options = adam_options(c);
    options.offload = job.offload;
    optim::AdamW adam(replica.data().slots(), options);
    if (!job.load.empty()) {
      auto checkpoint = parallel::CheckpointDirectory(job.load, world).resume("auto");
      checkpoint->load(pieces(replica.data(), adam, Holder::any));
      replica.data().publish();
      adam.set_steps(std::stoll(checkpoint->state("updates")));
    }
    for (int64_t step = 0; step < c.steps; ++step) {
      double scale = c.precision != "fp16" ? 1 : step == 1 ? 1e30 : 1024;
      double loss =
          replica.step([&](int64_t micro) { return feed.at(step + 1, micro); }, scale / 64).item();
      auto norm = replica.data().norm();
      bool skip = norm.non_finite > 0;
      if (!skip) {
        adam.step(1e-2, optim::clip_factor(norm.value / scale, 1) / scale);
        replica.data().publish();
      }
      std::lock_guard guard(lock);
      all.losses[size_t(step)] += loss;
      all.skipped[size_t(step)] = skip;
    }
    if (!job.save.empty())
      parallel::CheckpointDirectory(job.save, world)
          .save(c.steps, pieces(replica.data(), adam, Holder::owner),
                {{"updates", std::to_string(adam.steps())}});
    std::lock_guard guard(lock);
    for (auto& piece : pieces(replica.data(), adam, Holder::any)) {
      auto held = piece.value.storage()->hold(Access::read);
      auto mine = piece.value.to(f32).to_host<float>();
      auto& values = all.values[piece.name + "/" + piece.kind];
      values.resize(size_t(piece.part.full.numel()));
      for_each_overlap({.full = piece.part.full}, piece.part, [&](const parallel::Overlap& o) {
        std::copy_n(mine.begin() + o.from, o.count, values.begin() + o.to);
      });
    }
  });
  return all;
}

std::string describe(const MeshConfig& m, const std::string& precision) {
  return fmt::format("dp {} pp {} tp {} zero {} {}", m.dp, m.pp, m.tp, m.zero, precision);
}

const MeshConfig one{.dp = 1, .chunks = 1};

TEST(Offloading, ChangesNoBitOnAnyMesh) {
  TemporaryDirectory directory;
  const MeshConfig meshes[] = {
      one,
      {.dp = 2, .zero = 1, .chunks = 1},
      {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 2, .chunks = 1},
      {.dp = 2, .pp = 2, .zero = 3, .chunks = 1},
      {.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "zb-h1", .chunks = 1}};
  for (auto& mesh : meshes)
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(describe(mesh, precision));
      TrainConfig c = small(mesh, precision);
      Outcome off = run({c}), host = run({c, cut(Offload::To::host, directory)}),
              file = run({c, cut(Offload::To::file, directory)});
      EXPECT_EQ(off.skipped, (std::vector{false, precision == std::string("fp16"), false, false}));
      EXPECT_EQ(off.values.contains("tokens.table/master"), precision != std::string("fp32"));
      EXPECT_TRUE(host == off);
      EXPECT_TRUE(file == off);
    }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Offloading, CheckpointsAreEveryones) {
  TemporaryDirectory directory;
  const MeshConfig here{.dp = 2, .pp = 2, .zero = 1, .chunks = 1},
      there{.dp = 2, .tp = 2, .zero = 3, .chunks = 1};
  for (const char* precision : {"fp32", "bf16"}) {
    TrainConfig first = small(here, precision), second = small(there, precision);
    std::map<std::string, Outcome> ends;
    for (auto from : {Offload::To::off, Offload::To::file})
      for (auto to : {Offload::To::off, Offload::To::host, Offload::To::file}) {
        std::string path = directory / fmt::format("{}-{}-{}", precision, int(from), int(to));
        Outcome saved = run({first, cut(from, directory), {}, path});
        TrainConfig look = second;
        look.steps = 0;
        Outcome loaded = run({look, cut(to, directory), path});
        EXPECT_TRUE(loaded.values == saved.values) << path;
        ends[path] = run({second, cut(to, directory), path});
      }
    for (auto& [path, end] : ends) EXPECT_TRUE(end == ends.begin()->second) << path;
  }
}

TEST(Offloading, IsForeseen) {
  TemporaryDirectory directory;
  for (const std::string& offload :
       {std::string("off"), std::string("optimizer"), directory.path()})
    for (int64_t zero : {0, 1, 3}) {
      TrainConfig c = small({.dp = 2, .pp = 2, .zero = zero, .chunks = 1}, "bf16");
      c.offload = offload;
      auto foreseen = foresee(c), found = measure(c);
      for (size_t s = 0; s < found.size(); ++s) {
        // A message that its receiver has not taken yet is memory too.
        EXPECT_NEAR(double(foreseen[s].peak), double(found[s].peak), 0.05 * double(found[s].peak))
            << offload << zero;
        for (auto kind : {memory::optimizer, memory::buffers, memory::offloaded})
          EXPECT_EQ(foreseen[s].peaks[kind], found[s].peaks[kind]) << offload << zero;
        EXPECT_EQ(found[s].peaks[memory::optimizer] == 0, offload != "off");
        EXPECT_EQ(found[s].peaks[memory::offloaded] == 0, offload == "off");
      }
    }
}

}  // namespace
}  // namespace triax::minigpt
