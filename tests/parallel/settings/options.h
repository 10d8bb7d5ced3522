#pragma once
#include "triax/parallel/settings/command_line.h"

namespace triax::test {

enum class Precision { fp32, bf16, fp64 };

/// The options of a program to test with: a field of every type.
struct Options {
  int64_t layers = 4;
  int64_t dp = 0;
  int workers = 2;
  uint64_t seed = 1;
  double lr = 1e-3;
  double dropout = 0;
  std::string comm = "auto";
  std::string text = "a";
  Precision precision = Precision::fp32;
  bool graph = false;
  std::string profile;
  std::string out;
  std::string config;
};

inline parallel::Settings settings_of(Options& o) {
  auto precision =
      parallel::choice(o.precision, {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
  using parallel::SettingGroup;
  SettingGroup model("Model"), mesh("Mesh"), run("Run");
  model.add("layers", "N", "transformer blocks", &o.layers, {.range = {1, 2147483647}})
      .add("dropout", "X", "dropout probability", &o.dropout, {.range = {0, 1, true}});
  mesh.add("dp", "N", "data-parallel replicas", &o.dp,
           {.shown = "ranks / (pp x tp)", .derived = true});
  run.add("comm", "auto|mpi|threads", "how ranks communicate", &o.comm,
          {.choices = {"auto", "mpi", "threads"}})
      .add("precision", "fp32|bf16", "dtype of weights and activations", precision)
      .add("lr|learning-rate", "X", "peak learning rate", &o.lr)
      .add("workers", "N", "threads that read the data", &o.workers)
      .add("seed", "N", "seed of the random numbers", &o.seed)
      .add("text", "TEXT", "text to continue", &o.text)
      .add("graph", "", "capture the step as a CUDA graph and replay it", &o.graph)
      .add("profile", "[STEPS]", "steps to trace", &o.profile,
           {.shown = "none", .alone = "3-5", .saved = false})
      .add("out", "DIR", "run directory", &o.out,
           {.shown = "runs/<date>", .derived = true, .saved = false})
      .add("config", "FILE", "TOML file whose keys are these flags", &o.config,
           {.shown = "none", .key = false});
  return parallel::joined({model, mesh, run});
}

inline parallel::Verb verb_of(Options& o) {
  return {"train",
          "Trains a transformer on a text.",
          settings_of(o),
          {"program train --layers 2 --lr 0.01 --precision bf16 --comm threads --out runs/first"}};
}

/// The options that a command line gives; the program's name is `program`.
inline Options read(const std::vector<std::string>& words) {
  Options o;
  parallel::parse("program", verb_of(o), words);
  return o;
}

}  // namespace triax::test
