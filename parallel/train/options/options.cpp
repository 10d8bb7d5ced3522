#include "parallel/train/options/options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/io/checksum.h"
#include "core/io/files.h"
#include "optim/averaged.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "parallel/pipeline/partition.h"
#include "parallel/pipeline/synthesis/schedule_file.h"
#include "parallel/train/options/groups.h"
#include "parallel/train/options/step_range.h"

namespace triax::parallel {
namespace {

const char* name_of(Offloaded what) {
  return what == Offloaded::parameters  ? "params"
         : what == Offloaded::optimizer ? "optimizer"
                                        : "off";
}

void check_offload(const TrainOptions& o) {
  const StepOptions& s = o.step;
  bool has_map = !o.launch.device_map.empty();  // it may keep all in memory
  bool off = s.offload == Offloaded::nothing && s.places.empty();
  std::string what =
      s.places.empty() ? fmt::format("offload={}", name_of(s.offload)) : "device-map";
  check_input(!s.optimizer || off, Exit::config,
              "{} with an optimizer of the program's own\n"
              "  Only AdamW works on what is offloaded. Leave --offload out.",
              what);
  check_input(s.algorithm == Algorithm::adamw || off, Exit::config,
              "{} with optimizer={}\n"
              "  Only AdamW works on what is offloaded. Leave --offload or --optimizer out.",
              what, s.algorithm == Algorithm::lion ? "lion" : "muon");
  check_input(s.average == 0 || off, Exit::config,
              "{} with average={}\n"
              "  The average is kept with the weights. Leave --offload or --average out.",
              what, s.average);
  check_input(s.offload < Offloaded::parameters || s.zero == Zero::parameters, Exit::config,
              "offload=params with zero={}\n  Weights come for one layer at a time, which ZeRO-3 "
              "is for, on one rank too. Add --zero 3, or use --offload optimizer.",
              int(s.zero));
  if (s.offload_dir.empty()) return;
  check_input(!off || has_map, Exit::config,
              "offload-dir={} with offload=off\n  Nothing would be there. Add --offload optimizer, "
              "or --offload params with --zero 3.",
              printable(s.offload_dir));
  optim::check_offload_directory(s.offload_dir);
}

void check_saving(const TrainOptions& o) {
  const StepOptions& s = o.step;
  bool files = s.offload != Offloaded::nothing && !s.offload_dir.empty();
  for (auto& [layer, to] : s.places) files |= to == optim::Offload::To::file;
  check_input(!o.save_async || !files, Exit::config,
              "save-async with {}\n  It copies what it saves to memory first, and this run keeps "
              "state in files because memory is short. Leave --save-async out.",
              s.places.empty() ? fmt::format("offload-dir={}", printable(s.offload_dir))
                               : "layers that device-map places on disk");
  check_input(!o.resume_changed || !o.resume.empty(), Exit::config,
              "resume-changed without resume\n  Nothing is resumed that could have changed. Add "
              "--resume auto, or leave it out.");
}

/// Refuses what a CUDA graph cannot capture: work of the host, and layers that wait for each other.
void check_graph(const TrainOptions& o) {
  const StepOptions& s = o.step;
  if (!s.graph) return;
  auto without = [](bool fine, const std::string& flag, const char* why) {
    check_input(fine, Exit::config, "graph with {}\n  {}. Leave --graph out, or change {}.", flag,
                why, flag);
  };
  without(o.launch.device != "cpu", "device=cpu", "Only GPUs have graphs");
  without(s.mesh.pp == 1, fmt::format("pp={}", s.mesh.pp), "Pipeline stages wait for each other");
  without(s.zero < Zero::parameters, fmt::format("zero={}", int(s.zero)),
          "ZeRO-3 frees weights and gathers them again");
  without(s.offload == Offloaded::nothing, fmt::format("offload={}", name_of(s.offload)),
          "The host updates the weights");
  without(!s.optimizer, "an optimizer of the program's own", "It may need the host");
  without(s.algorithm != Algorithm::muon, "optimizer=muon",
          "Its products have not been captured yet");
  without(s.average == 0, fmt::format("average={}", s.average),
          "The rate of the average changes with the step");
  without(!o.ledger, "ledger", "It counts what the host asks for, which is once");
}

/// Refuses options whose sums have an order, or pieces, that depend on the mesh.
void check_bitwise(const TrainOptions& o) {
  const StepOptions& s = o.step;
  check_input(s.bitwise || s.tp_slices == 1, Exit::config,
              "tp-slices={} without bitwise\n  Slices cost time, for equal bits alone. Add "
              "--bitwise, or leave --tp-slices out.",
              s.tp_slices);
  if (!s.bitwise) return;
  auto without = [](bool fine, const std::string& flag, const std::string& why) {
    check_input(fine, Exit::config, "bitwise with {}\n  {}. Leave --bitwise out, or change that.",
                flag, why);
  };
  without(s.tp_slices % s.mesh.tp == 0, fmt::format("tp={}, tp-slices={}", s.mesh.tp, s.tp_slices),
          fmt::format("Split layers are summed in slices, equally many on every rank: expected "
                      "--tp-slices N, a multiple\n  of each tp that is to have the same bits, such "
                      "as {}, the same N on all meshes",
                      s.mesh.tp));
  without(s.reduce_dtype == f32, "reduce-dtype=bf16", "A rank's part of a gradient is rounded");
  without(o.launch.device == "cpu", fmt::format("device={}", o.launch.device),
          "GPUs have no fixed-point sums yet; expected --device cpu, for `plan` --hardware cpu");
  for (double scale : {s.loss_scale, s.dynamic_scale.initial, s.dynamic_scale.minimum})
    without(scale == 0 || std::exp2(std::round(std::log2(scale))) == scale,
            fmt::format("a loss scale of {}", scale),
            "Expected a power of two, which rounds nothing");
}

/// Checks options of Muon: on parts of a matrix it would be another optimizer. Replicas
/// orthogonalize the same gradient, each for itself: with other bits their weights would drift.
void check_muon(const TrainOptions& o) {
  const StepOptions& s = o.step;
  if (s.optimizer || s.algorithm != Algorithm::muon) return;
  check_input(s.mesh.dp == 1 || !o.launch.nondeterministic, Exit::config,
              "optimizer=muon with nondeterministic and dp={}\n  Each replica computes the update "
              "by products of its own, which have to have the same bits. Leave --nondeterministic "
              "out.",
              s.mesh.dp);
  bool slices = s.zero != Zero::off && s.mesh.dp > 1;
  if (!slices && s.mesh.tp == 1) return;
  fail(Exit::config,
       "optimizer=muon with {}\n  Muon needs whole matrices, of which a rank then holds a part. "
       "Valid: --tp 1 and --zero 0; dp and pp may be any.",
       slices ? fmt::format("zero={}", int(s.zero)) : fmt::format("tp={}", s.mesh.tp));
}

void check_batch(const StepOptions& o) {
  int64_t unit = o.micro_batch * o.mesh.dp;
  check_input(unit > 0 && o.global_batch > 0, Exit::config,
              "micro-batch={}, global-batch={}; expected at least 1", o.micro_batch,
              o.global_batch);
  if (o.global_batch % unit == 0) return;
  int64_t below = o.global_batch / unit * unit, above = below + unit;
  fail(Exit::config,
       "global-batch={} is not a multiple of micro-batch {} x dp {} = {}\n"
       "  Every replica accumulates the same number of whole micro-batches. Nearest valid: {}.",
       o.global_batch, o.micro_batch, o.mesh.dp, unit,
       below == 0 ? fmt::format("{}", above) : fmt::format("{}, {}", below, above));
}

void check_recompute(const StepOptions& o) {
  if (o.recompute != Recompute::block_split) return;
  check_input(o.mesh.tp > 1 && !o.sequence_parallel, Exit::config,
              "recompute=block-split with {}\n  {}. Valid: off, selective, block.",
              o.mesh.tp > 1 ? "sequence-parallel" : "tp=1",
              o.mesh.tp > 1
                  ? "Each rank has only its rows of a block's input: they are sharded already"
                  : "There are no ranks to shard a block's input over");
}

void read_schedule_file(StepOptions& o) {
  if (!is_schedule_file(o.schedule) || o.schedules.contains(o.schedule)) return;
  o.schedules[o.schedule] = schedule_from(read_schedule(o.schedule), o.schedule);
}

void check_schedule_name(const StepOptions& o) {
  auto found = o.schedules.find(o.schedule);
  check_input(found != o.schedules.end(), Exit::config, "schedule `{}`; expected one of: {}",
              printable(o.schedule), join(names_of(o.schedules), ", "));
  check_input(bool(found->second.make), Exit::config,
              "schedule `{}`: an empty function; expected one that makes lists", o.schedule);
  found->second(o.pipeline(), 0);  // it refuses chunks that it cannot have
}

void check_rates(const TrainOptions& o) {
  bool decays = o.lr.decay != optim::Schedule::Decay::constant;
  check_input(!decays || (o.lr.low >= 0 && o.lr.low <= o.lr.peak), Exit::config,
              "min-lr={} with lr={}\n"
              "  The learning rate falls from --lr to --min-lr. Valid min-lr: 0 to {}.",
              o.lr.low, o.lr.peak, o.lr.peak);
}

}  // namespace

Schedules built_in_schedules() {
  Schedules all;
  for (auto& name : schedule_names()) all[name] = schedule_named(name);
  return all;
}

std::map<std::string, std::string> schedule_content(const StepOptions& o) {
  if (!is_schedule_file(o.schedule)) return {};
  uint32_t sum = 0;
  for (const Actions& list : lists_of(o.schedules.at(o.schedule), o.pipeline()))
    for (const Action& a : list) {
      std::string text = label(a, o.chunks);
      sum = crc32c(text.data(), text.size() + 1, sum);
    }
  return {{"lists of the schedule", fmt::format("crc32c {:08x}", sum)}};
}

std::vector<std::string> names_of(const Schedules& schedules) {
  std::vector<std::string> names;
  for (auto& [name, schedule] : schedules) names.push_back(name);
  return names;
}

optim::LossScaleOptions StepOptions::scaling() const {
  using Kind = optim::LossScaleOptions::Kind;
  if (dtype != f16) return {.kind = Kind::fixed, .initial = 1};
  if (loss_scale > 0) return {.kind = Kind::fixed, .initial = loss_scale, .minimum = loss_scale};
  return dynamic_scale;
}

optim::Offload StepOptions::place_of(Offloaded what) const {
  using To = optim::Offload::To;
  To to = offload < what ? To::off : offload_dir.empty() ? To::host : To::file;
  return {.to = to, .directory = offload_dir};  // places of single layers need it too
}

namespace {

template <class Optimizer, class Options> optim::MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<optim::Slot>& slots) {
    return std::make_unique<Optimizer>(slots, options);
  };
}

/// Returns the optimizer that --optimizer names.
optim::MakeOptimizer built_in(const StepOptions& o) {
  optim::AdamWOptions adamw = o.adamw;
  adamw.offload = o.place_of(Offloaded::optimizer);
  switch (o.algorithm) {
    case Algorithm::adamw:
      break;
    case Algorithm::lion:
      return maker<optim::Lion>(optim::LionOptions{adamw.beta1, adamw.beta2, adamw.weight_decay});
    case Algorithm::muon:
      return maker<optim::Muon>(
          optim::MuonOptions{.weight_decay = adamw.weight_decay, .adamw = adamw});
  }
  return maker<optim::AdamW>(adamw);
}

/// Throws Error 78 for --check-replicas without data-parallel replicas that hold the same optimizer
/// state (dp 1, or ZeRO), or where tensor-parallel ranks need not have equal bits.
void check_replicated(const TrainOptions& o);
void check_replicated(const TrainOptions& o) {
  const StepOptions& s = o.step;
  check_input(o.check_replicas == 0 || s.zero == Zero::off, Exit::config,
              "check-replicas={} with zero={}; expected data-parallel replicas that hold the same "
              "optimizer state\n  Leave it out, or use --zero 0.",
              o.check_replicas, int(s.zero));
  check_input(o.check_replicas == 0 || s.mesh.tp == 1 || !o.launch.nondeterministic, Exit::config,
              "check-replicas={} with tp={} and nondeterministic\n  Tensor-parallel ranks compute "
              "some gradients alike, bit for bit only without --nondeterministic.",
              o.check_replicas, s.mesh.tp);
}

}  // namespace

optim::MakeOptimizer StepOptions::make_optimizer() const {
  auto make = optimizer ? optimizer : built_in(*this);
  if (average == 0) return make;
  return [make, decay = average](const std::vector<optim::Slot>& slots) {
    return std::make_unique<optim::Averaged>(slots, make(slots), decay);
  };
}

void resolve(TrainOptions& o, int64_t ranks) {
  StepOptions& s = o.step;
  int64_t others = int64_t(s.mesh.pp) * s.mesh.tp;
  if (s.mesh.dp == 0) s.mesh.dp = int(std::max<int64_t>(1, others > 0 ? ranks / others : 1));
  read_schedule_file(s);
  auto schedule = s.schedules.find(s.schedule);  // else check_options() refuses it
  if (s.chunks == 0) s.chunks = schedule == s.schedules.end() ? 1 : schedule->second.chunks;
  if (s.global_batch == 0) s.global_batch = s.micro_batch * s.mesh.dp;
  if (o.lr.low == -1) o.lr.low = o.lr.peak / 10;
  if (o.lr.warmup == -1) o.lr.warmup = std::min<int64_t>(100, o.steps / 2);
  if (o.steps >= 0 && o.lr.warmup > o.steps) o.cut_warmup = std::exchange(o.lr.warmup, o.steps);
  o.lr.steps = std::max<int64_t>(1, o.steps);
}

void check_options(const TrainOptions& o, int64_t ranks,
                   const std::function<bool(const MeshShape&)>& fits) {
  const StepOptions& s = o.step;
  check_input(s.dtype == f16 || s.loss_scale == 0, Exit::config,
              "loss-scale={} with precision={}\n  Only fp16 has gradients that need it. Leave it "
              "out, or add --precision fp16.",
              s.loss_scale, s.dtype == bf16 ? "bf16" : "fp32");
  check_input(s.dynamic_scale.minimum <= s.dynamic_scale.initial, Exit::config,
              "min-loss-scale={} is more than initial-loss-scale={}\n"
              "  The loss scale never falls below the one and begins at the other.",
              s.dynamic_scale.minimum, s.dynamic_scale.initial);
  check_graph(o);
  check_profile(o);
  check_shape(s.mesh, int(ranks), fits);
  check_bitwise(o);
  check_batch(s);
  check_recompute(s);
  check_schedule_name(s);
  check_rates(o);
  (void)parse_groups(s.groups);
  check_input(o.init_new.empty() || !o.init.empty(), Exit::config,
              "init-new={} without init; expected a checkpoint, which the other parameters start "
              "from",
              printable(o.init_new));
  check_muon(o);
  check_offload(o);
  check_saving(o);
  check_replicated(o);
}

std::vector<int64_t> placement_of(const std::string& text, const PipelineShape& shape,
                                  int64_t layers) {
  int64_t sum = 0;
  for (size_t at = 0; at < text.size(); at = std::min(text.find(',', at), text.size() - 1) + 1)
    sum += std::clamp<int64_t>(std::atoll(text.c_str() + at), 0, layers);
  bool whole = sum == layers;  // else without the ends
  auto counts = parse_placement(text, shape, whole ? layers : layers - 2);
  if (!whole) ++counts.front(), ++counts.back();
  check_input(
      counts.front() > 0 && counts.back() > 0, Exit::config,
      "placement: {} leaves the {} stage without layers; expected one at least: it reads the "
      "batch, and the last makes the loss",
      text, counts.front() > 0 ? "last" : "first");
  return counts;
}

}  // namespace triax::parallel
