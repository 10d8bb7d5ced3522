// Options that no model could be trained with, and what follows from those that are given.
#include "triax/parallel/train/options/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/shared/team.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/program/program.h"

namespace triax::parallel::options_test {

using namespace test;

/// The message for options that `change` was done to, on two ranks.
std::string message(const std::function<void(TrainOptions&)>& change) {
  TrainOptions o;
  change(o);
  resolve(o, 2);
  return error_of([&] { check_options(o, 2); }, Exit::config);
}

TEST(Options, ResolveWhatFollows) {
  TrainOptions o;
  resolve(o, 2);
  EXPECT_EQ(o.step.mesh, (MeshShape{.dp = 2}));
  EXPECT_EQ(o.step.chunks, 1);
  EXPECT_EQ(o.step.global_batch, 2 * o.step.micro_batch);
  EXPECT_EQ(o.step.accumulation(), 1);
  EXPECT_EQ(o.lr.low, o.lr.peak / 10);
  EXPECT_EQ(o.lr.warmup, 100);
  EXPECT_EQ(o.lr.steps, o.steps);
  EXPECT_NO_THROW(check_options(o, 2));

  TrainOptions few{.steps = 20}, chunked;
  resolve(few, 1);
  EXPECT_EQ(few.lr.warmup, 10);
  chunked.step.schedule = "zb-interleaved";
  resolve(chunked, 1);
  EXPECT_EQ(chunked.step.chunks, 2);
  TrainOptions v;
  v.step.schedule = "zb-v", v.step.mesh.pp = 4;
  resolve(v, 4);
  EXPECT_EQ(v.step.pipeline(), (PipelineShape{4, 2, 1, Placement::v}));
}

TEST(Options, ResolveChangesNothingThatWasGiven) {
  TrainOptions given{.steps = 7};
  given.step.mesh.dp = 3;
  given.step.chunks = 1;
  given.step.global_batch = 72;
  given.lr.low = given.lr.warmup = 0;
  TrainOptions resolved = given;
  resolve(resolved, 3);
  EXPECT_EQ(values_of(train_settings(resolved)), values_of(train_settings(given)));
  EXPECT_EQ(resolved.step.accumulation(), 2);
}

TEST(Options, SizesWhoseProductOverflows) {
  TrainOptions o;
  o.step.mesh = {.dp = 0, .pp = 65536, .tp = 65536};
  resolve(o, 2);
  EXPECT_EQ(o.step.mesh.dp, 1);
}

/// Expects that what `change` makes of options is refused with this text, or one that begins with
/// it if it ends in "...".
struct Refusal {
  std::function<void(TrainOptions&)> change;
  std::string text;
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (auto& [change, text] : refusals) {
    std::string got = message(change);
    bool begins = text.ends_with("...");
    std::string expected = begins ? text.substr(0, text.size() - 3) : text;
    EXPECT_EQ(begins ? got.substr(0, expected.size()) : got, expected);
  }
}

TEST(Options, OfMeshesBatchesAndRates) {
  expect_refused({
      {[](auto& o) { o.step.mesh.dp = 3; },
       "mesh: dp 3 * pp 1 * tp 1 = 3 does not equal the 2 ranks started\n"
       "  With 2 ranks try: --dp 2 --pp 1 --tp 1, or --dp 1 --pp 2 --tp 1, or --dp 1 --pp 1 --tp "
       "2\n"
       "  For this mesh: mpirun -np 3 with the same command, or --comm threads --ranks 3"},
      {[](auto& o) { o.step.global_batch = 50; },
       "global-batch=50 is not a multiple of micro-batch 12 x dp 2 = 24\n  Every replica "
       "accumulates the same number of whole micro-batches. Nearest valid: 48, 72."},
      {[](auto& o) { o.step.global_batch = 5; },
       "global-batch=5 is not a multiple of micro-batch 12 x dp 2 = 24\n  Every replica "
       "accumulates the same number of whole micro-batches. Nearest valid: 24."},
      {[](auto& o) { o.lr.peak = 1e-5, o.lr.low = 1e-4; },
       "min-lr=0.0001 with lr=1e-05\n  The learning rate falls from --lr to --min-lr. "
       "Valid min-lr: 0 to 1e-05."},
      {[](auto& o) { o.lr.peak = 1e-5, o.lr.low = -0.5; }, "min-lr=-0.5 with lr=1e-05..."},
      {[](auto& o) { o.step.dynamic_scale = {.initial = 2, .minimum = 4}; },
       "min-loss-scale=4 is more than initial-loss-scale=2\n"
       "  The loss scale never falls below the one and begins at the other."},
      {[](auto& o) { o.step.dtype = bf16, o.step.loss_scale = 8; },
       "loss-scale=8 with precision=bf16\n  Only fp16 has gradients that need it. Leave it out, or "
       "add --precision fp16."},
      {[](auto& o) { o.step.recompute = Recompute::block_split; },
       "recompute=block-split with tp=1\n  There are no ranks to shard a block's input over. "
       "Valid: off, selective, block."},
      {[](auto& o) {
         o.step.recompute = Recompute::block_split;
         o.step.mesh.tp = 2, o.step.sequence_parallel = true;
       },
       "recompute=block-split with sequence-parallel\n  Each rank has only its rows..."},
      {[](auto& o) { o.step.schedule = "2f2b"; },
       "schedule `2f2b`; expected one of: 1f1b, 1f1b-v, dualpipev, gpipe, interleaved, v-half, "
       "v-min, zb-2p, zb-h1, zb-interleaved, zb-v"},
      {[](auto& o) { o.step.mesh = {.dp = 1, .pp = 2}, o.step.chunks = 2; },
       "schedule 1f1b: 2 chunks a stage; expected 1, or --schedule interleaved"},
      {[](auto& o) { o.step.schedule = "zb-v", o.step.chunks = 3; },
       "schedule zb-v: 3 chunks a stage; expected 2, down and up the V"},
  });
}

TEST(Options, OfWhatCannotBeOffloaded) {
  expect_refused({
      {[](auto& o) { o.step.offload_dir = "/nowhere/at/all"; },
       "offload-dir=/nowhere/at/all with offload=off\n  Nothing would be there. Add --offload "
       "optimizer, or --offload params with --zero 3."},
      {[](auto& o) { o.step.offload = Offloaded::parameters, o.step.zero = Zero::gradients; },
       "offload=params with zero=2\n  Weights come for one layer at a time, which ZeRO-3 is for, "
       "on "
       "one rank too. Add --zero 3, or use --offload optimizer."},
      {[](auto& o) {
         o.step.offload = Offloaded::optimizer;
         o.step.optimizer = [](auto&) { return nullptr; };
       },
       "offload=optimizer with an optimizer of the program's own\n"
       "  Only AdamW works on what is offloaded. Leave --offload out."},
      {[](auto& o) { o.step.offload = Offloaded::optimizer, o.step.average = 0.999; },
       "offload=optimizer with average=0.999\n"
       "  The average is kept with the weights. Leave --offload or --average out."},
      {[](auto& o) { o.step.offload = Offloaded::optimizer, o.step.algorithm = Algorithm::muon; },
       "offload=optimizer with optimizer=muon\n"
       "  Only AdamW works on what is offloaded. Leave --offload or --optimizer out."},
      {[](auto& o) {
         o.save_async = true, o.step.offload = Offloaded::optimizer, o.step.offload_dir = "/tmp";
       },
       "save-async with offload-dir=/tmp\n  It copies what it saves to memory first..."},
      {[](auto& o) {
         o.save_async = true, o.launch.device_map = "map.json", o.step.zero = Zero::parameters;
         o.step.places = {{"block0", optim::Offload::To::host}, {"head", optim::Offload::To::file}};
       },
       "save-async with layers that device-map places on disk..."},
  });
  TrainOptions o;
  o.step.offload = Offloaded::optimizer, o.step.offload_dir = "/nowhere/at/all";
  resolve(o, 1);
  expect_error([&] { check_options(o, 1); }, {"offload: /nowhere/at/all: No such file"},
               Exit::not_found);
  o.step.optimizer = [](auto&) { return nullptr; };
  for (auto& s : train_settings(o)) EXPECT_NE(s.name, "beta1") << "an option of AdamW";
}

TEST(Options, OfWhatCannotBeCaptured) {
  auto with = [](auto change) {
    return [=](TrainOptions& o) {
      o.step.graph = true, o.launch.device = "cuda";
      change(o);
    };
  };
  expect_refused({
      {with([](auto& o) { o.launch.device = "cpu"; }),
       "graph with device=cpu\n  Only GPUs have graphs. Leave --graph out, or change device=cpu."},
      {with([](auto& o) { o.step.zero = Zero::parameters; }),
       "graph with zero=3\n  ZeRO-3 frees weights and gathers them again. Leave --graph out, or "
       "change zero=3."},
      {with([](auto& o) { o.step.average = 0.999; }),
       "graph with average=0.999\n  The rate of the average changes with the step. Leave --graph "
       "out, or change average=0.999."},
      {with([](auto& o) { o.step.algorithm = Algorithm::muon; }), "graph with optimizer=muon..."},
      {with([](auto& o) { o.step.mesh = {.dp = 1, .pp = 2}; }), "graph with pp=2..."},
      {with([](auto& o) { o.step.offload = Offloaded::optimizer; }),
       "graph with offload=optimizer..."},
      {with([](auto& o) { o.ledger = true; }), "graph with ledger..."},
  });
}

TEST(Options, OfMuon) {
  expect_refused({
      {[](auto& o) { o.step.algorithm = Algorithm::muon, o.launch.nondeterministic = true; },
       "optimizer=muon with nondeterministic and 2 replicas\n..."},
  });
}

// A configuration for 100,000 steps, tried for a few.
TEST(Options, AWarmUpEndsWithTheRun) {
  for (int64_t steps : {0, 1, 10, 100}) {
    TrainOptions o{.steps = steps};
    o.lr.warmup = 100;
    resolve(o, 1);
    resolve(o, 1);  // as every rank does again
    EXPECT_EQ(o.lr.warmup, steps);
    EXPECT_EQ(o.cut_warmup, steps < 100 ? 100 : 0);
    EXPECT_NO_THROW(check_options(o, 1));
    if (steps > 0) {
      EXPECT_EQ(o.lr.at(steps), o.lr.peak);
    }
  }
}

TEST(Options, AWarmUpBelow0IsRefused) {
  TrainOptions o;
  for (const Setting& s : train_settings(o))
    for (const char* value : {"-1", "-2", "-0.5"})
      if (s.name == "warmup" || s.name == "min-lr")
        expect_error(
            [&] {
              assign(s, value, {Exit::usage, "--" + s.name});
            },
            {"--" + s.name, "number, 0 or more"}, Exit::usage);
  TrainOptions in_code;
  in_code.lr.warmup = -5;
  resolve(in_code, 1);
  std::string said = error_of([&] { check_values(train_settings(in_code)); }, Exit::config);
  EXPECT_EQ(said, "warmup: `-5`; expected a whole number, 0 or more");
}

TEST(Options, ARateThatStaysNeedsNoEnd) {
  TrainOptions o;
  o.lr.peak = 1e-5, o.lr.decay = optim::Schedule::Decay::constant;
  resolve(o, 1);
  EXPECT_NO_THROW(check_options(o, 1));
}

TEST(Options, MoreChunksThanAnyModelHasLayers) {
  TrainOptions o;
  o.step.chunks = 1 << 30;
  expect_config_error([&] { check_values(train_settings(o)); }, {"chunks", "in [0, 1024]"});
}

TEST(Options, PlacementOfAllLayersOrOfThoseBetweenTheEnds) {
  PipelineShape two{.stages = 2, .chunks = 1, .micros = 1};
  EXPECT_EQ(placement_of("2,4", two, 6), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(placement_of("1,3", two, 6), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(placement_of("0,4", two, 6), (std::vector<int64_t>{1, 5}));
  for (const char* wrong : {"3,2", "4", "1,1,2", "-1,5", "x", ","})
    expect_config_error([&] { placement_of(wrong, two, 6); }, {"placement: ", "--placement 2,2"});
}

// Refused before a rank is started.
TEST(Options, RanksThatCannotBeStarted) {
  auto refused = [](const LaunchOptions& o) {
    int argc = 0;
    char** argv = nullptr;
    return error_of([&] { on_ranks(o, argc, argv, [](World&) { FAIL(); }); }, Exit::config);
  };
  EXPECT_EQ(refused({.device = "gpu"}),
            "device `gpu`\n  Valid: cpu, cuda, and cuda:N for GPU N, from 0.");
  EXPECT_EQ(refused({.comm = "nccl"}),
            "comm=nccl with device=cpu\n"
            "  NCCL moves tensors of GPUs. Add --device cuda, or leave --comm out.");
  EXPECT_EQ(refused({.ranks = 2}).substr(0, 22), "ranks=2 with comm=auto");
}

// As people write it; triax itself writes "2".
TEST(TrainSettings, TakeANumberForTheNameOfAValue) {
  TrainOptions o;
  Settings settings = train_settings(o);
  for (const char* text : {"zero = 2\n", "zero = \"2\"\n"}) {
    o.step.zero = Zero::off;
    read_config_text(settings, text, "run.toml");
    EXPECT_EQ(o.step.zero, Zero::gradients) << text;
  }
  expect_config_error([&] { read_config_text(settings, "zero = 4\n", "run.toml"); },
                      {"run.toml:1: zero is a number; expected one of: 0, 1, 2, 3"});
}

// What a run says at its start about its schedule and its threads.

TEST(Notices, AWarmUpThatTheRunCutsOff) {
  auto o = test::tiny_options();
  o.lr.warmup = 1000;
  std::string text = train(o).said;
  EXPECT_TRUE(says(text, "warmup=1000 is more than steps=3: the warm-up ends with the run"));
  o.lr.warmup = 3;
  EXPECT_FALSE(says(train(o).said, "warm-up"));
}

TEST(Notices, StepsThatChangeNothing) {
  auto o = test::tiny_options();
  o.lr = {.peak = 0.1, .low = 0, .warmup = -1, .steps = 0};
  o.steps = 1;
  std::string text = train(o).said, one = "step 1 has learning rate 0, which is --min-lr";
  size_t at = text.find(one);
  EXPECT_NE(at, text.npos) << text;
  EXPECT_EQ(text.find(one, at + 1), text.npos) << "once: " << text;
  o.steps = 4;
  text = train(o).said;
  EXPECT_TRUE(says(text, "step 4 has learning rate 0"));
  o.lr.low = 0.01;
  EXPECT_FALSE(says(train(o).said, "learning rate 0"));
  o.lr = {.peak = 0, .low = 0, .warmup = 0, .steps = 0};  // asked for
  EXPECT_FALSE(says(train(o).said, "learning rate 0"));
  o.lr = {.shape = optim::Schedule::Warmup::log, .peak = 1, .low = 1, .warmup = 2, .steps = 0};
  text = train(o).said;
  EXPECT_TRUE(says(text, "step 1 has learning rate 0: it changes no weights"));
}

TEST(Notices, MoreThreadsThanCores) {
  auto with = [](int threads) {
    testing::internal::CaptureStdout();
    World world(single_rank({}), threads);
    Trainer(test::task_of(), test::tiny_options(), world).run();
    return testing::internal::GetCapturedStdout();
  };
  int cores = usable_cores();
  std::string many = fmt::format("1 rank of this host x {} threads on ", 2 * cores + 1);
  std::string text = with(2 * cores + 1);
  EXPECT_TRUE(says(text, many) && says(text, "set a smaller OMP_NUM_THREADS")) << text;
  EXPECT_FALSE(says(with(1), "of this host")) << "each has a core";
}

}  // namespace triax::parallel::options_test
