#pragma once
#include <cstdint>
#include <string>

#include "examples/minigpt/command_line.h"

namespace triax::minigpt {

/// The shape of the transformer.
struct ModelConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 64;  ///< tokens a position may look back on, itself included
  double dropout = 0;
  int64_t vocab = 0;  ///< 0: as many as the tokenizer has
};

/// A number whose 0 means something, and that resolve() is to choose.
constexpr int64_t unset = INT64_MIN;

/// How the ranks share the work.
struct MeshConfig {
  int64_t dp = 0;  ///< 0: what pp and tp leave of the ranks started
  int64_t pp = 1;
  int64_t tp = 1;
  bool sequence_parallel = false;
  int64_t zero = 0;
  std::string schedule = "1f1b";
  int64_t chunks = 0;     ///< of a stage; 0: 2 for the interleaved schedules, else 1
  std::string placement;  ///< blocks per virtual stage; empty: balanced by cost
};

/// What of a block is made again in backward instead of being kept.
enum class Recompute {
  off,
  selective,   ///< what attention and GELU return (Korthikanti et al., 2022, section 5)
  block,       ///< all of it but its input (Chen et al., 2016)
  block_split  ///< and that input is shared out over the tensor-parallel ranks
};

/// Everything `minigpt train` can be told; train_verb() says what each member means.
struct TrainConfig {
  std::string config;  ///< the file that was read, if any; no key of its own
  std::string data;    ///< empty: the corpus made when triax was built

  ModelConfig model;

  int64_t micro_batch = 12;
  int64_t global_batch = 0;  ///< 0: micro_batch * mesh.dp
  int64_t steps = 2000;
  int64_t seed = 1;
  double lr = 1e-3;
  double min_lr = 1e-4;
  int64_t warmup = unset;  ///< unset: 100, or half of fewer than 200 steps
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double clip = 1;  ///< 0: no clipping

  MeshConfig mesh;
  std::string comm = "auto";   ///< auto, nccl, mpi, threads
  int64_t ranks = 0;           ///< only with comm = threads; 0: one
  std::string device = "cpu";  ///< cpu, cuda, cuda:N
  bool graph = false;
  bool nondeterministic = false;
  std::string precision = "fp32";
  double loss_scale = 0;  ///< fp16 only; 0: dynamic
  std::string recompute = "off";
  std::string offload = "off";  ///< of optimizer state: off, optimizer, or a directory

  std::string out;      ///< empty: runs/<date>-<name of the data>
  std::string metrics;  ///< empty: OUT/metrics.jsonl
  bool ledger = false;
  int64_t val_every = 250;
  double val_fraction = 0.1;

  int64_t save_every = 0;  ///< 0: only at the end
  int64_t keep = 3;
  std::string resume;  ///< empty: start afresh; else auto, last-good, or a checkpoint

  /// Micro-batches of one replica in one step. Call after validate().
  int64_t accumulation() const { return global_batch / (micro_batch * mesh.dp); }
};

/// Everything `minigpt sample` can be told.
struct SampleConfig {
  std::string config;
  std::string checkpoint;
  std::string prompt = "\n";
  int64_t tokens = 200;
  double temperature = 1;  ///< 0: always the most likely token
  int64_t top_k = 0;       ///< 0: all
  int64_t seed = 1;
  MeshConfig mesh;
  std::string comm = "auto";
  int64_t ranks = 0;
  std::string device = "cpu";
};

/// Everything `minigpt parity` can be told: which run to compare with the same on one rank.
struct ParityConfig {
  TrainConfig train;
  std::string mesh = "2x2x2";  ///< dp x pp x tp
};
/// The run that is meant. Throws Error 78 for a mesh that is not three numbers.
TrainConfig resolved(const ParityConfig& config);

/// Everything `minigpt plan` can be told. Sizes of the mesh that are 0, and a ZeRO stage of -1, are
/// looked for.
struct PlanConfig {
  TrainConfig train;
  int64_t ranks = 0;  ///< 0: those of the mesh
  std::string hardware = "h100";
  std::string memory;  ///< of a rank, like 80GB; empty: the hardware's
  int64_t node = 8;    ///< ranks on one node
  int64_t top = 20;    ///< rows to print
  bool check = false;
};

/// off, selective, block, block-split. Throws Error 78 for another word.
Recompute recompute_of(const std::string& name);

/// The verbs, their flags bound to the members of `config` (they hold pointers into it): the one
/// table that the command line, configuration files, --help and docs/cli.md are made from.
Verb train_verb(TrainConfig& config);
Verb sample_verb(SampleConfig& config);
/// Sets the defaults of `config` to a small model and few steps.
Verb parity_verb(ParityConfig& config);

/// Sets the mesh of `config` to one that is looked for.
Verb plan_verb(PlanConfig& config);

/// docs/cli.md: all verbs with the defaults of their flags, in Markdown.
std::string flags_page();

/// Fill in what follows from other values: data, global_batch, dp (from `ranks`, those started),
/// out (with `date`, which must be the same on all ranks), metrics. Nothing that was given changes.
void resolve(TrainConfig& config, int64_t ranks, const std::string& date);

/// Refuse, before anything starts, what cannot be trained on `ranks` ranks. `config` is resolved.
/// Throws Error 78 with what, why and the valid values.
void validate(const TrainConfig& config, int64_t ranks);
void validate(const SampleConfig& config, int64_t ranks);

/// A configuration file that reads back as exactly this configuration.
std::string to_toml(const TrainConfig& config);

}  // namespace triax::minigpt
