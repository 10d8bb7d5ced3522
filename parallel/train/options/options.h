#pragma once
#include <map>
#include <string>
#include <vector>

#include "optim/adamw.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "parallel/comm/wrapper_comm.h"
#include "parallel/data/data_parallel.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/settings/setting.h"

namespace triax::parallel {

/// What backward computes again instead of keeping it from forward.
enum class Recompute {
  off,
  selective,   ///< what layers offer as nn::Layer::selective (Korthikanti et al., 2022, section 5)
  block,       ///< every layer but the first and last: only its input is kept (Chen et al., 2016)
  block_split  ///< as block, with the kept input sharded over the tensor-parallel ranks
};

/// What leaves the memory where the model computes between uses. Each includes what is before it.
enum class Offloaded {
  nothing,
  optimizer,  ///< AdamW's moments and master weights
  parameters  ///< weights and gradients too: with ZeRO-3, layer by layer
};

using Schedules = std::map<std::string, Schedule>;
/// Those of parallel/pipeline/schedule.h by name. A program adds its own.
Schedules built_in_schedules();
std::vector<std::string> names_of(const Schedules& schedules);

/// A placement of a program's own, in place of ours (partition.h): how many layers, whose relative
/// times are `costs`, each virtual stage holds, in order. Pure: all ranks ask for it. Not asked
/// where one stage holds all.
using MakePlacement = std::function<std::vector<int64_t>(const std::vector<double>& costs,
                                                         const PipelineShape& shape)>;

inline optim::AdamWOptions adamw_defaults() {
  optim::AdamWOptions o;  // not by name: g++ 12 would warn of the rest in every user
  o.beta2 = 0.99;
  return o;
}

/// Update rules by name (optim/).
enum class Algorithm { adamw, lion, muon };

/// What one training step is made of: model replica, mesh, batch, precision, optimizer.
struct StepOptions {
  MeshShape mesh = {.dp = 0};      ///< dp 0: what pp and tp leave of the ranks
  bool sequence_parallel = false;  ///< shard token rows over tp outside of split stretches
  Zero zero = Zero::off;
  std::string schedule = "1f1b";  ///< a name in `schedules`, or a path (is_schedule_file)
  Schedules schedules = built_in_schedules();
  int chunks = 0;            ///< of a pipeline stage; 0: as many as the schedule wants
  std::string placement;     ///< layers on each virtual stage, `3,3,2`; empty: balanced by cost
  MakePlacement place = {};  ///< of a program; `placement`, where it is given, comes first
  int64_t micro_batch = 12;  ///< samples in a micro-batch of one replica
  int64_t global_batch = 0;  ///< samples in a step over all replicas; 0: micro_batch * dp
  DType dtype = f32;         ///< of weights and activations
  double loss_scale = 0;     ///< f16 only; 0: dynamic
  optim::LossScaleOptions dynamic_scale = {};
  Recompute recompute = Recompute::off;
  int64_t seed = 1;  ///< of weights, dropout and the order of samples
  double clip = 1;   ///< largest gradient norm; 0: no clipping
  optim::AdamWOptions adamw = adamw_defaults();
  std::string groups;  ///< parameters with rates of their own (parse_groups); empty: none
  Offloaded offload = Offloaded::nothing;
  std::string offload_dir;  ///< to files there; empty: to the host's memory
  /// Layers by name whose weights, gradients and state are kept elsewhere than `offload` says.
  std::map<std::string, optim::Offload::To> places = {};
  Algorithm algorithm = Algorithm::adamw;  ///< with the numbers of `adamw`
  double average = 0;  ///< decay of a moving average of the weights, which validation uses; 0: none
  optim::MakeOptimizer optimizer = {};  ///< an optimizer of the program's own in its place
  bool graph = false;                   ///< capture the step as a CUDA graph and replay it
  bool bitwise = false;      ///< the same bits on every mesh: see DataParallelOptions::bitwise
  DType reduce_dtype = f32;  ///< DataParallelOptions::reduce_dtype
  int tp_slices = 1;         ///< Slices::count, a multiple of tp
  nn::Purpose purpose = nn::Purpose::training;

  /// Micro-batches of one replica in one step. Call when resolved.
  int64_t accumulation() const { return global_batch / (micro_batch * mesh.dp); }
  PipelineShape pipeline() const {
    return {mesh.pp, chunks, int(accumulation()), schedules.at(schedule).placement};
  }
  /// Where `what` is between uses.
  optim::Offload place_of(Offloaded what) const;
  optim::LossScaleOptions scaling() const;
  optim::MakeOptimizer make_optimizer() const;
};

/// How ranks run and communicate.
struct LaunchOptions {
  std::string comm = "auto";   ///< auto, nccl, mpi, threads
  int64_t ranks = 0;           ///< only with comm = threads; 0: one
  std::string device = "cpu";  ///< cpu, cuda, cuda:N
  std::string device_map;      ///< of a program (apply_device_map); empty: none
  bool nondeterministic = false;
  WrapComm wrap = {};  ///< of a program (WorldOptions::wrap): for `train` and `parity`
};

/// A training run.
struct TrainOptions {
  StepOptions step = {};
  LaunchOptions launch = {};
  int64_t steps = 2000;
  /// Low -1: a tenth of the peak. Warm-up -1: 100 steps, or half of fewer than 200; of more than
  /// `steps` it ends with them. Its steps follow `steps`.
  optim::Schedule lr = {.peak = 1e-3, .low = -1, .warmup = -1, .steps = 0};
  int64_t val_every = 250;  ///< steps between validations; 0: only at the end
  int64_t save_every = 0;   ///< steps between checkpoints; 0: only at the end
  int64_t keep = 3;         ///< checkpoints
  bool keep_best = false;   ///< save after each validation of the lowest loss so far, and keep it
  bool save_async = false;  ///< copy what is saved to host memory and write it while training on
  int64_t check_replicas = 0;   ///< steps between comparisons of replicas; 0: none
  int workers = 0;              ///< threads that load data ahead of the step; 0: none
  std::string config;           ///< the file that was read, if any
  std::string deepspeed;        ///< the same, of DeepSpeed's JSON
  std::string out;              ///< run directory; empty: none is written
  std::string metrics;          ///< empty: OUT/metrics.jsonl
  std::string resume;           ///< empty: start afresh; else auto, last-good, or a checkpoint
  bool resume_changed = false;  ///< allow what would be another run: OnResume::ask
  std::string profile;          ///< steps to trace, `3` or `3-5`; empty: none
  /// Write event files into the run directory.
  bool tensorboard = false;
  std::string init;        ///< checkpoint or run directory with the initial weights; empty: random
  std::string init_new;    ///< patterns of parameters that it leaves as the model makes them
  bool ledger = false;     ///< print what was communicated and held in memory
  int64_t cut_warmup = 0;  ///< the warm-up that resolve() cut to `steps`; 0: none
};

/// The largest size of anything: products of two such sizes fit 64 bits.
constexpr double huge = 2147483647;

/// Every option of a training run, once: flags of the command line, keys of configuration files,
/// what ranks must agree on and what a resumed run may not change are all made of these. They write
/// to the options that are passed, which outlive them.
Settings optimizer_settings(TrainOptions& o);
Settings mesh_settings(StepOptions& o);
Settings launch_settings(LaunchOptions& o);
Settings run_settings(TrainOptions& o);
Settings memory_settings(StepOptions& o);
Settings checkpoint_settings(TrainOptions& o);
/// All of the above.
Settings train_settings(TrainOptions& o);

/// What the lists of a schedule that was read from a file are, by name: two files may have one
/// path. Nothing for other schedules. Call when resolved.
std::map<std::string, std::string> schedule_content(const StepOptions& o);

/// `name = literal` of every setting, resolved ones included, by name.
std::map<std::string, std::string> values_of(const Settings& settings);

/// Fill in what follows from other values: dp (from `ranks`), chunks, global_batch, warm-up.
/// Nothing that was given changes, but a warm-up longer than the run ends with it. A schedule's
/// file is read here, into `schedules` (Error 65, 66).
void resolve(TrainOptions& o, int64_t ranks);

/// Refuse, before anything starts, what no model could be trained with on `ranks` ranks. `o` is
/// resolved; `fits` says which meshes may be suggested. Throws Error 78 with what, why and the
/// valid values; for a directory to offload to that will not do 66 or 73.
void check_options(const TrainOptions& o, int64_t ranks,
                   const std::function<bool(const MeshShape&)>& fits = {});

/// Layers of each virtual stage, as --placement says it: counts that add up to `layers`, or to two
/// fewer, when the first and the last layer go with the ends. Throws Error 78.
std::vector<int64_t> placement_of(const std::string& text, const PipelineShape& shape,
                                  int64_t layers);

}  // namespace triax::parallel
