#pragma once
#include "parallel/settings/command_line.h"

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
  std::string out;
  std::string config;
};

inline parallel::Settings settings_of(Options& o) {
  auto precision =
      parallel::choice(o.precision, {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
  return {
      {"layers", "Model", "N", "transformer blocks", &o.layers, {1, 2147483647}},
      {"dropout", "Model", "X", "dropout probability", &o.dropout, {0, 1, true}},
      {.name = "dp",
       .group = "Mesh",
       .value = "N",
       .help = "data-parallel replicas",
       .field = &o.dp,
       .shown = "ranks / (pp x tp)",
       .derived = true},
      {.name = "comm",
       .group = "Run",
       .value = "auto|mpi|threads",
       .help = "how ranks communicate",
       .field = &o.comm,
       .choices = {"auto", "mpi", "threads"}},
      {"precision", "Run", "fp32|bf16", "dtype of weights and activations", precision},
      {"lr", "Run", "X", "peak learning rate", &o.lr},
      {"workers", "Run", "N", "threads that read the data", &o.workers},
      {"seed", "Run", "N", "seed of the random numbers", &o.seed},
      {"text", "Run", "TEXT", "text to continue", &o.text},
      {"graph", "Run", "", "capture the step as a CUDA graph and replay it", &o.graph},
      {.name = "out",
       .group = "Run",
       .value = "DIR",
       .help = "run directory",
       .field = &o.out,
       .shown = "runs/<date>",
       .derived = true,
       .saved = false},
      {.name = "config",
       .group = "Run",
       .value = "FILE",
       .help = "TOML file whose keys are these flags",
       .field = &o.config,
       .shown = "none",
       .key = false},
  };
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
