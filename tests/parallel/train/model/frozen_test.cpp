// Frozen parameters: what is left out, and the same training on every mesh.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/memory.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::frozen_test {

using namespace test;

/// y = W x + b + B A x: low-rank adapters (Hu et al., "LoRA", 2021, section 4) beside a layer whose
/// parameters keep their names.
struct Adapted : ColumnLinear {
  Adapted(int64_t in, int64_t out, const TensorParallel& tp, double std)
      : ColumnLinear(in, out, tp, {.std = 0.3}),
        down(child<nn::Linear>("lora_a", in, 4,
                               nn::LinearOptions{.std = 0.3, .bias = false, .shard = tp.whole()})),
        up(child<ColumnLinear>("lora_b", 4, out, tp,
                               SplitLinearOptions{.std = std, .bias = false})) {}
  Tensor operator()(const Tensor& x) const { return ColumnLinear::operator()(x) + up(down(x)); }
  nn::Linear& down;
  ColumnLinear& up;
};

/// Block with adapters, or without.
template <class Up> struct Adapts : nn::Module {
  template <class... Std>
  explicit Adapts(const TensorParallel& tp, Std... std)
      : norm(child<LayerNorm>("norm", 16, tp)),
        up(child<Up>("up", 16, 32, tp, std...)),
        down(child<RowLinear>("down", 32, 16, tp, SplitLinearOptions{.std = 0.3})) {}
  Tensor operator()(const Tensor& x) const { return x + down(relu(up(norm(x)))); }
  LayerNorm& norm;
  Up& up;
  RowLinear& down;
};

/// Layers rows, in, block0, block1, head; `in` is a first layer with parameters.
struct AdaptedNet : nn::Sequence {
  explicit AdaptedNet(const TensorParallel& tp, double std = 0.3) {
    add<Rows>("rows", tp);
    add<Block>("in", tp);
    add<Adapts<Adapted>>("block0", tp, std);
    add<Adapts<Adapted>>("block1", tp, std);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};
/// Its adapters start as those of a published LoRA do: they change nothing.
struct FreshNet : AdaptedNet {
  explicit FreshNet(const TensorParallel& tp) : AdaptedNet(tp, 0) {}
};
struct PlainNet : nn::Sequence {
  explicit PlainNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("in", tp);
    add<Block>("block0", tp);
    add<Block>("block1", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

constexpr const char* lora = "*lora*:lr=1; *:frozen";
constexpr const char* second_half = "in.*:frozen; block0.*:frozen";
constexpr const char* biases = "*.bias:lr=2; *.beta:lr=0.5; *:frozen";

Trace one_rank(const std::string& groups, int64_t steps) {
  auto o = tiny_options();
  o.step.groups = groups, o.steps = steps;
  return trace(task_of<AdaptedNet>(), o);
}

TEST(Frozen, ParametersKeepTheirBitsAndAreInNoNorm) {
  Trace all = one_rank("", 1);
  for (std::string groups : {lora, second_half, biases}) {
    Trace some = one_rank(groups, 3);
    EXPECT_EQ(some.steps[0].loss, all.steps[0].loss);
    double squares = 0;
    for (auto& [name, gradient] : some.steps[0].gradients) {
      EXPECT_EQ(gradient.values, all.steps[0].gradients.at(name).values) << name;
      for (float g : gradient.values) squares += double(g) * g;
    }
    EXPECT_NEAR(some.steps[0].norms[0], std::sqrt(squares), 1e-6);
    size_t changed = 0;
    for (auto& [name, before] : some.initial) {
      if (name.find('/') != name.npos) continue;
      bool trained = some.steps[0].gradients.contains(name);
      changed += some.steps[2].state.at(name).values != before.values;
      EXPECT_EQ(some.steps[2].state.at(name).values != before.values, trained) << name;
      EXPECT_EQ(some.steps[2].state.contains(name + "/m"), trained) << name;
    }
    EXPECT_EQ(changed, some.steps[0].gradients.size()) << groups;
  }
}

TEST(Frozen, EveryMeshTrainsTheSame) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 4, 1}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3})
      for (const char* groups : {lora, second_half, biases}) {
        auto o = tiny_options(mesh);
        o.step.zero = Zero(zero), o.step.groups = groups, o.steps = 2;
        o.step.micro_batch = 4;
        o.step.schedule = mesh.pp > 1 && (number & 1) != 0 ? "zb-h1" : "1f1b";
        o.step.sequence_parallel = (number & 2) != 0;
        o.step.tp_pieces = 1 + number % 4;
        o.step.recompute = (number & 4) != 0 ? Recompute::block : Recompute::off;
        number += 3;  // three groups: each meets all of the eight
        SCOPED_TRACE(fmt::format("{}{}{} ZeRO {} {} {} {}", mesh.dp, mesh.pp, mesh.tp, zero, groups,
                                 o.step.schedule, number));
        EXPECT_EQ(difference(task_of<AdaptedNet>(), o), "");
        if (mesh.size() < 8 && mesh.pp < 4) continue;
        for (DType dtype : {bf16, f16}) {
          o.step.dtype = dtype;
          EXPECT_EQ(difference(task_of<AdaptedNet>(), o, OneRank::same_micro_batches), "")
              << name(dtype);
        }
      }
}

TEST(Frozen, EveryMeshTrainsTheSameBits) {
  auto bits = [](MeshShape mesh, int zero, const char* groups) {
    auto o = tiny_options(mesh);
    o.step.groups = groups, o.step.bitwise = true, o.step.tp_slices = 2, o.steps = 2;
    o.step.zero = Zero(zero), o.step.micro_batch = 4;
    TraceStep last = trace(task_of<AdaptedNet>(), o).steps[1];
    std::map<std::string, std::vector<float>> weights;
    for (auto& [name, whole] : last.state) weights[name] = whole.values;
    return std::tuple(last.loss, last.norms[0], weights);
  };
  for (const char* groups : {lora, second_half, "in.*:frozen; *.bias:frozen"}) {
    auto one = bits({}, 0, groups);
    EXPECT_EQ(bits({2, 2, 2}, 3, groups), one) << groups;
    EXPECT_EQ(bits({2, 1, 2}, 1, groups), one) << groups;
    EXPECT_EQ(bits({1, 2, 1}, 0, groups), one) << groups;
  }
}

TEST(Frozen, OffloadedToFiles) {
  TemporaryDirectory files;
  auto o = tiny_options({2, 1, 1});
  o.step.zero = Zero::parameters, o.step.groups = second_half, o.step.micro_batch = 4;
  o.step.offload = Offloaded::parameters, o.step.offload_dir = files.path();
  EXPECT_EQ(difference(task_of<AdaptedNet>(), o), "");
}

/// A frozen scale, which the layer behind the one that lists it uses too; or none uses it.
template <bool used> struct Scaled : nn::Module {
  explicit Scaled(const TensorParallel& tp)
      : scale(parameter({.name = "scale",
                         .full = {16},
                         .init = {.mean = 1},
                         .shard = tp.whole(),
                         .frozen = true})) {}
  Tensor operator()(const Tensor& x) const { return used ? x * scale.value : x; }
  nn::Parameter& scale;
};
template <bool used> struct ScaledNet : nn::Sequence {
  explicit ScaledNet(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    auto& scaled = child<Scaled<used>>("scaled", tp);
    add("scaled", {&scaled}, [&](const Tensor& x) { return scaled(x); });
    add("again", {}, [&](const Tensor& x) { return scaled(x); });
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TEST(Frozen, UsesAreCheckedAsThoseOfOthers) {
  EXPECT_TRUE(refused(outcome(task_of<ScaledNet<true>>(), tiny_options()),
                      "it uses parameter scaled.scale", "layer again"));
  EXPECT_TRUE(refused(outcome(task_of<ScaledNet<false>>(), tiny_options()),
                      "parameter scaled.scale: no op reaches it", "returns"));
}

TEST(Frozen, IsWhatRunsAndParitySay) {
  auto o = tiny_options();
  o.step.groups = "head.*:lr=1; *:frozen";
  EXPECT_TRUE(says(train(task_of<PlainNet>(), o).said, "parameters, 64 of them trained"));
  Printed printed;
  EXPECT_EQ(parity(task_of<PlainNet>(), o), Exit::ok);
  EXPECT_TRUE(says(printed.text(), "1 gradients and weights of every step, 18 frozen weights"));
}

/// Bytes of gradients and of optimizer state that a rank holds.
std::pair<int64_t, int64_t> held(const std::string& groups) {
  std::pair<int64_t, int64_t> bytes;
  run_worlds(1, [&](World& world) {
    auto o = tiny_options();
    o.step.groups = groups;
    Trainer trainer(task_of<AdaptedNet>(), o, world);
    trainer.step();
    auto counter = memory::counter();
    bytes = {counter->live(memory::gradients), counter->live(memory::optimizer)};
  });
  return bytes;
}

TEST(Frozen, ParametersHaveNeitherGradientNorState) {
  auto all = held(""), head = held("head.*:lr=1; *:frozen");
  EXPECT_EQ(head.first, 4 * 16 * 4);
  EXPECT_EQ(head.second, 2 * head.first);
  EXPECT_GT(all.first, 10 * head.first);
}

TEST(Frozen, NothingToTrainIsAnError) {
  auto o = tiny_options();
  o.step.groups = "*:frozen";
  EXPECT_TRUE(refused(outcome(task_of(), o), "all 13 parameters are frozen", "one to train"));
}

/// A run directory with a trained PlainNet.
std::string trained(const TemporaryDirectory& directory, double average = 0) {
  auto o = tiny_options();
  o.out = directory / "plain", o.steps = 8, o.step.average = average;
  train(task_of<PlainNet>(), o);
  return o.out;
}

TEST(Frozen, AdaptersStartBesideTheWeightsOfACheckpoint) {
  TemporaryDirectory directory;
  std::string plain = trained(directory);
  std::vector<double> one;
  for (MeshShape mesh : {MeshShape{1, 1, 1}, {2, 2, 2}}) {
    auto o = tiny_options(mesh);
    o.init = plain, o.steps = 1, o.step.micro_batch = 4, o.step.zero = Zero::gradients;
    double without = train(task_of<PlainNet>(), o).losses[0];
    expect_data_error([&] { train(task_of<FreshNet>(), o); },
                      {"has no tensor block0.up.lora_a.weight", "the model's own: --init-new"});
    o.init_new = "*.lora_*", o.step.groups = lora, o.steps = 6;
    auto with = train(task_of<FreshNet>(), o).losses;
    EXPECT_NEAR(with[0], without, 1e-6);
    if (one.empty()) one = with;
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(with[i], one[i], 1e-5) << i;
    o.init_new = "*.lroa_*", o.init = "";
    expect_config_error([&] { train(task_of<FreshNet>(), o); }, {"init-new=*.lroa_* without init"});
    o.init = plain;
    expect_config_error([&] { train(task_of<FreshNet>(), o); },
                        {"init-new: `*.lroa_*` matches no parameter", "Parameters: "});
  }
}

TEST(Frozen, ModelsWithOtherSettingsAreSaid) {
  TemporaryDirectory directory;
  int64_t classes = 4;
  Task task = task_of<PlainNet>();
  task.settings = SettingGroup("Model").add("classes", "N", "of the head", &classes);
  auto o = tiny_options();
  o.out = directory / "four";
  train(task, o);
  o.init = std::exchange(o.out, ""), classes = 5;
  std::string other = "is of a model with classes 4; this run asks for 5";
  expect_config_error([&] { train(task, o); }, {other, "Leave --classes out"});
  o.init_new = "head.*";
  EXPECT_TRUE(says(train(task, o).said, other));
}

TEST(Frozen, WhatACheckpointHasBesidesIsLeftOutIfNamed) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / "adapted";
  train(task_of<AdaptedNet>(), o);
  o.init = std::exchange(o.out, "");
  expect_data_error([&] { train(task_of<PlainNet>(), o); },
                    {"has no place in this model", "--init-new \"block0.up.lora_"});
  o.init_new = "*lora*; head.*";
  EXPECT_EQ(train(task_of<PlainNet>(), o).losses.size(), 3u);
  for (const char* text : {"*lora*;", "; head.*"}) {
    o.init_new = text;
    expect_config_error([&] { train(task_of<PlainNet>(), o); }, {"an empty one"});
  }
}

TEST(Frozen, RunsResumeOnAnotherMesh) {
  TemporaryDirectory directory;
  auto options = [&](MeshShape mesh, int64_t steps, const std::string& out) {
    auto o = tiny_options(mesh);
    o.step.micro_batch = 4, o.steps = steps, o.out = directory / out, o.step.groups = lora;
    o.lr = {.decay = optim::Schedule::Decay::constant, .peak = 0.05, .warmup = 0, .steps = 0};
    o.step.average = 0.9;
    return o;
  };
  auto first = options({.dp = 2}, 3, "halves"), second = options({.pp = 2, .tp = 2}, 6, "halves");
  first.step.zero = Zero::parameters, second.step.zero = Zero::optimizer;
  expect_resumed(task_of<AdaptedNet>(), options({}, 6, "straight"), first, second);
  for (const char* groups : {"", "*lora_a*:lr=1; *:frozen"}) {
    auto other = options({}, 9, "straight");
    other.resume = "auto", other.step.groups = groups;
    expect_data_error([&] { train(task_of<AdaptedNet>(), other); },
                      {"the optimizer or the frozen parameters differ", "--groups"});
  }
}

}  // namespace triax::parallel::frozen_test
