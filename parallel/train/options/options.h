#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "triax/optim/adamw.h"
#include "triax/optim/loss_scaler.h"
#include "triax/optim/schedule.h"
#include "triax/parallel/comm/wrapper_comm.h"
#include "triax/parallel/context/context_parallel.h"
#include "triax/parallel/data/data_parallel.h"
#include "triax/parallel/mesh.h"
#include "triax/parallel/pipeline/schedule.h"
#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

/// The activations that backward recomputes instead of keeping them from forward.
enum class Recompute {
  off,
  selective,   ///< offered by layers as nn::Layer::selective (Korthikanti et al., 2022, section 5)
  block,       ///< every layer but the first and last: only its input is kept (Chen et al., 2016)
  block_split  ///< as block, with the kept input sharded over the tensor-parallel ranks
};
/// `off`, `selective`, `block`, `block-split`.
constexpr const char* name(Recompute r) {
  constexpr const char* names[] = {"off", "selective", "block", "block-split"};
  return names[int(r)];
}

/// The state that is offloaded from the device between uses. Each includes those before it.
enum class Offloaded {
  nothing,
  optimizer,  ///< AdamW's moments and master weights
  parameters  ///< weights and gradients too: with ZeRO-3, layer by layer
};

using Schedules = std::map<std::string, Schedule>;
/// Returns the schedules of parallel/pipeline/schedule.h by name. A program adds its own.
Schedules built_in_schedules();
std::vector<std::string> names_of(const Schedules& schedules);

/// Makes a program's own placement, instead of ours (partition.h): the number of layers, whose
/// relative times are `costs`, on each virtual stage, in order. Pure: all ranks call it. Not called
/// where one stage holds all.
using MakePlacement = std::function<std::vector<int64_t>(const std::vector<double>& costs,
                                                         const PipelineShape& shape)>;

inline optim::AdamWOptions adamw_defaults() {
  optim::AdamWOptions o;  // not by name: g++ 12 would warn of the rest in every user
  o.beta2 = 0.99;
  return o;
}

/// The weights of a checkpoint that inference uses.
enum class Weights { trained, average };
/// The update rules by name (optim/).
enum class Algorithm { adamw, lion, muon };

/// An axis that a program adds to meshes (StepOptions::add_axis): it gets a flag, `--NAME N`, and a
/// place in the mesh, its texts, errors, ledger and plan. Layers that split something along an axis
/// of features find its ranks by TensorParallel::on.
struct AxisKind {
  std::string name, help;
  Cuts cuts = Cuts::samples;
  /// The rule of ZeRO along an axis of samples or rows. With `shard` its ranks share state out;
  /// with `replicate` all hold the same slices, whose gradients are summed at the end of a step
  /// (hybrid sharding: Zhao et al., "PyTorch FSDP", 2023, section 3.2.2).
  enum class Zeros { shard, replicate } zeros = Zeros::shard;
  /// Needed if it cuts rows: `share` returns a rank's part of a batch, `rows` makes Batch::rows.
  std::function<nn::Batch(const nn::Batch& batch, int ranks, int rank)> share = {};
  std::function<std::unique_ptr<nn::RowRanks>(Communicator& ranks)> rows = {};
  /// Needed if it cuts weights, whose ranks train by themselves: makes an optimizer that calls
  /// `inner` and brings the weights of `slots` together.
  using Around = std::function<std::unique_ptr<optim::Optimizer>(
      std::unique_ptr<optim::Optimizer> inner, const std::vector<optim::Slot>& slots,
      Communicator& ranks)>;
  Around around = {};
};

/// The options of one training step: model replica, mesh, batch, precision, optimizer.
struct StepOptions {
  MeshShape mesh = {.dp = 0};  ///< dp 0: what the other axes leave of the ranks
  std::vector<std::shared_ptr<const AxisKind>> axes =
      {};  ///< a program's own, of `mesh.more`: add_axis()
  ContextForm cp_form = ContextForm::ring;
  bool sequence_parallel = false;  ///< shard token rows over tp outside of split stretches
  Zero zero = Zero::off;
  std::string schedule = "1f1b";  ///< a name in `schedules`, or a path (is_schedule_file)
  Schedules schedules = built_in_schedules();
  int chunks = 0;            ///< chunks of a pipeline stage; 0: as many as the schedule wants
  std::string placement;     ///< layers on each virtual stage, `3,3,2`; empty: balanced by cost
  MakePlacement place = {};  ///< a program's own; `placement`, if given, comes first
  int64_t micro_batch = 12;  ///< samples in a micro-batch of one replica
  int64_t global_batch = 0;  ///< samples in a step over all replicas; 0: micro_batch * dp
  DType dtype = f32;         ///< the dtype of weights and activations
  double loss_scale = 0;     ///< f16 only; 0: dynamic
  optim::LossScaleOptions dynamic_scale = {};
  Recompute recompute = Recompute::off;
  int64_t seed = 1;  ///< the seed of weights, dropout and the order of samples
  double clip = 1;   ///< largest gradient norm; 0: no clipping
  optim::AdamWOptions adamw = adamw_defaults();
  std::string groups;  ///< parameters with rates of their own (parse_groups); empty: none
  Offloaded offload = Offloaded::nothing;
  std::string offload_dir;  ///< the directory of its files; empty: the host's memory
  /// The place of weights, gradients and state of layers by name, if not that of `offload`.
  std::map<std::string, optim::Offload::To> places = {};
  Algorithm algorithm = Algorithm::adamw;  ///< uses the numbers of `adamw`
  double average = 0;  ///< decay of a moving average of the weights, which validation uses; 0: none
  optim::MakeOptimizer optimizer = {};  ///< a program's own optimizer, in its place
  bool graph = false;                   ///< capture the step as a CUDA graph and replay it
  bool bitwise = false;      ///< equal bits on every mesh: see DataParallelOptions::bitwise
  DType reduce_dtype = f32;  ///< DataParallelOptions::reduce_dtype
  int tp_slices = 1;         ///< Slices::count, a multiple of tp
  int row_parts = 1;         ///< of each sample's rows, whose sums are made one by one
  int tp_pieces = 1;         ///< TensorParallelOptions::pieces
  nn::Purpose purpose = nn::Purpose::training;

  /// Adds an axis of one rank. Throws Error 78 for a name that is taken.
  void add_axis(AxisKind kind);
  /// Returns the program's axis that cuts rows; null if it has one rank or there is none.
  std::shared_ptr<const AxisKind> own_rows() const;
  /// Returns the axes over which ZeRO does not shard.
  AxisSet replicated() const;
  /// Returns the rows of a batch that a rank has, by its number along the axis that cuts rows.
  nn::Batch share(const nn::Batch& batch, int rank) const;
  /// Returns the number of micro-batches of one replica in one step. Call when resolved.
  int64_t accumulation() const { return global_batch / (micro_batch * mesh.replicas()); }
  /// Returns the equal parts, each summed by itself, of the rows that a rank has of a sample.
  int64_t row_parts_here() const { return bitwise ? std::max(1, row_parts / mesh.cp) : 1; }
  PipelineShape pipeline() const {
    return {mesh.pp, chunks, int(accumulation()), schedules.at(schedule).placement};
  }
  /// Returns where `what` lies between uses.
  optim::Offload place_of(Offloaded what) const;
  optim::LossScaleOptions scaling() const;
  optim::MakeOptimizer make_optimizer() const;
};

/// The options by which ranks run and communicate.
struct LaunchOptions {
  std::string comm = "auto";   ///< auto, nccl, mpi, threads
  int64_t ranks = 0;           ///< only with comm = threads; 0: one
  std::string device = "cpu";  ///< cpu, cuda, cuda:N
  std::string device_map;      ///< applied by a program (apply_device_map); empty: none
  bool nondeterministic = false;
  WrapComm wrap = {};  ///< a program's own (WorldOptions::wrap): for `train` and `parity`
};

/// The options of a training run.
struct TrainOptions {
  StepOptions step = {};
  LaunchOptions launch = {};
  int64_t steps = 2000;
  /// The learning rate. Low -1: a tenth of the peak. Warm-up -1: 100 steps, or half of fewer than
  /// 200; a longer one than `steps` ends with them. Its steps follow `steps`.
  optim::Schedule lr = {.peak = 1e-3, .low = -1, .warmup = -1, .steps = 0};
  int64_t val_every = 250;  ///< steps between validations; 0: only at the end
  int64_t save_every = 0;   ///< steps between checkpoints; 0: only at the end
  int64_t keep = 3;         ///< checkpoints
  bool keep_best = false;   ///< save after each validation with the lowest loss so far, and keep it
  bool save_async = false;  ///< copy checkpoints to host memory and write them while training on
  int64_t check_replicas = 0;   ///< steps between comparisons of replicas; 0: none
  int64_t certify = 0;          ///< steps between lines of the certificate; 0: none
  int workers = 0;              ///< threads that load data ahead of the step; 0: none
  std::string config;           ///< the file that was read, if any
  std::string deepspeed;        ///< DeepSpeed's JSON file that was read, if any
  std::string out;              ///< run directory; empty: none is written
  std::string metrics;          ///< empty: OUT/metrics.jsonl
  std::string resume;           ///< empty: start afresh; else auto, last-good, or a checkpoint
  bool resume_changed = false;  ///< allow changes that make another run: OnResume::ask
  std::string profile;          ///< steps to trace, `3` or `3-5`; empty: none
  /// Writes event files into the run directory.
  bool tensorboard = false;
  std::string init;      ///< checkpoint or run directory with the initial weights; empty: random
  std::string init_new;  ///< patterns of parameters that it leaves as the model makes them
  Weights init_weights = Weights::trained;
  bool ledger = false;     ///< print communication and peak memory
  int64_t cut_warmup = 0;  ///< the warm-up that resolve() cut to `steps`; 0: none
};

/// The steps that --profile names.
struct StepRange {
  int64_t first = 0, last = 0;
};
/// Reads `3-5`, or `3`. Throws Error 78.
StepRange parse_step_range(const std::string& text);

/// The largest value of any size: products of two such sizes fit 64 bits.
constexpr double huge = 2147483647;

/// Return the options of a training run, each once: command-line flags, keys of configuration
/// files, `plan`, `parity`, DeepSpeed's keys, agreement of ranks and the checks of a resumed run
/// are all made of these. They write to the options that are passed, which outlive them.
Settings optimizer_settings(TrainOptions& o);
Settings mesh_settings(StepOptions& o);
Settings launch_settings(LaunchOptions& o);
Settings run_settings(TrainOptions& o);
Settings memory_settings(StepOptions& o);
Settings checkpoint_settings(TrainOptions& o);
/// Returns all of the above.
Settings train_settings(TrainOptions& o);

/// Returns, by name, a checksum of the action lists of a schedule that was read from a file: two
/// files may have one path. Nothing for other schedules. Call when resolved.
std::map<std::string, std::string> schedule_content(const StepOptions& o);

/// Returns name and literal of every setting, resolved ones included.
std::map<std::string, std::string> values_of(const Settings& settings);

/// Fills in the values that follow from others: dp (from `ranks`), chunks, global_batch, warm-up.
/// No given value changes, but a warm-up longer than the run ends with it. A schedule's file is
/// read here, into `schedules` (Error 65, 66).
void resolve(TrainOptions& o, int64_t ranks);

/// Says which meshes an error may suggest.
using FittingMesh = std::function<bool(const MeshShape&)>;

/// Refuses, before anything starts, options with which no model can train on `ranks` ranks. `o` is
/// resolved; `fits` says which meshes may be suggested. Throws Error 78 with what, why and the
/// valid values; for an unusable directory to offload to 66 or 73.
void check_options(const TrainOptions& o, int64_t ranks, const FittingMesh& fits = {});

/// Returns the number of layers of each virtual stage, as --placement says it: counts that add up
/// to `layers`, or to two fewer, if the first and the last layer go with the ends. Throws Error 78.
std::vector<int64_t> placement_of(const std::string& text, const PipelineShape& shape,
                                  int64_t layers);

}  // namespace triax::parallel
