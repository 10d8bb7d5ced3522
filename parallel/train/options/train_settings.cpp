#include "core/check.h"
#include "parallel/tensor/tensor_parallel.h"
#include "parallel/train/options/options.h"

namespace triax::parallel {

namespace {

constexpr const char* optimizer_heading = "Batch and optimizer";

Settings rate_settings(optim::Schedule& lr) {
  using Decay = optim::Schedule::Decay;
  using Warmup = optim::Schedule::Warmup;
  SettingGroup group(optimizer_heading, OnResume::say);
  return group.add("lr", "X", "learning rate after warm-up", &lr.peak)
      .add("min-lr", "X", "learning rate at the end of the schedule, if it falls", &lr.low,
           {.range = {-1}, .shown = "lr / 10", .derived = true})
      .add("lr-schedule", "cosine|linear|constant",
           "learning rate after warm-up: falls to --min-lr along a cosine or a line, or stays",
           choice(lr.decay, {{"cosine", Decay::cosine},
                             {"linear", Decay::linear},
                             {"constant", Decay::constant}}))
      .add("warmup", "N", "steps of learning-rate warm-up from 0, at most those of the run",
           &lr.warmup,
           {.range = {-1}, .shown = "100, or half of fewer than 200 steps", .derived = true})
      .add("warmup-shape", "linear|log",
           "share of the learning rate in warm-up step k: k / N, or log k / log N",
           choice(lr.shape, {{"linear", Warmup::linear}, {"log", Warmup::log}}));
}

/// Returns the settings of the built-in update rules.
Settings rule_settings(StepOptions& s) {
  SettingGroup group(optimizer_heading, OnResume::say);
  return group
      .add("optimizer", "adamw|lion|muon",
           "update rule; muon: of hidden matrices, with AdamW for the rest",
           choice(
               s.algorithm,
               {{"adamw", Algorithm::adamw}, {"lion", Algorithm::lion}, {"muon", Algorithm::muon}}),
           {.on_resume = OnResume::refuse})
      .add("weight-decay", "X", "decoupled weight decay, of matrices only", &s.adamw.weight_decay)
      .add("beta1", "X", "beta1 of AdamW and Lion", &s.adamw.beta1, {.range = {0, 1, true}})
      .add("beta2", "X", "beta2 of AdamW and Lion", &s.adamw.beta2, {.range = {0, 1, true}})
      .add("eps", "X", "epsilon of AdamW", &s.adamw.eps, {.range = {1e-30, 1}});
}

}  // namespace

Settings optimizer_settings(TrainOptions& o) {
  SettingGroup group(optimizer_heading, OnResume::say);
  StepOptions& s = o.step;
  group.add("steps", "N", "training steps", &o.steps)
      .add("micro-batch", "N", "samples in one micro-batch of one replica", &s.micro_batch,
           {.range = {1, huge}, .on_resume = OnResume::free})
      .add("global-batch", "N",
           "samples in one step over all replicas; gradients are accumulated over global / (micro "
           "x dp) micro-batches",
           &s.global_batch,
           {.range = {0, huge},
            .shown = "micro-batch x dp",
            .on_resume = OnResume::ask,
            .derived = true})
      .add(rate_settings(o.lr))
      .add("clip", "X", "gradient clipping: largest norm of the gradient; 0: none", &s.clip)
      .add("groups", "PATTERN:lr=X,decay=X|frozen;..",
           "parameter groups by name, such as \"*norm*:lr=2,decay=0; block0.*:frozen\": lr "
           "multiplies the learning rate, decay replaces the weight decay, frozen parameters are "
           "not trained; the first match counts",
           &s.groups, {.shown = "none"})
      .add(
          "average", "DECAY",
          "also keep an exponential moving average of the weights, such as 0.999, which validation "
          "uses; 0: none",
          &s.average, {.range = {0, 1, true}, .on_resume = OnResume::refuse});
  return s.optimizer ? group : group.add(rule_settings(s));  // a program's own has its own
}

Settings mesh_settings(StepOptions& s) {
  SettingGroup group("Mesh", OnResume::free);
  auto names = names_of(s.schedules);
  return group
      .add("dp", "N", "data-parallel replicas", &s.mesh.dp,
           {.range = {0, huge},
            .shown = "what pp and tp leave of the ranks started",
            .derived = true})
      .add("pp", "N", "pipeline stages", &s.mesh.pp, {.range = {1, huge}})
      .add("tp", "N", "tensor-parallel ranks that split each layer", &s.mesh.tp,
           {.range = {1, huge}})
      .add("sequence-parallel", "",
           "shard the rows outside of split layers over tp (sequence parallelism)",
           &s.sequence_parallel)
      .add("zero", "0|1|2|3",
           "ZeRO stage: what dp shards; 1 optimizer state, 2 gradients too, 3 weights too",
           choice(s.zero, {{"0", Zero::off},
                           {"1", Zero::optimizer},
                           {"2", Zero::gradients},
                           {"3", Zero::parameters}}))
      .add("reduce-dtype", "fp32|bf16",
           "what gradients are sent in between data-parallel ranks; bf16: half the bytes, rounded "
           "before and after each sum",
           choice(s.reduce_dtype, {{"fp32", f32}, {"bf16", bf16}}), {.on_resume = OnResume::say})
      .add("schedule", "NAME|FILE",
           fmt::format("pipeline schedule: {}, or a .json file of `schedule --search`",
                       join(names, ", ")),
           &s.schedule, {.choices = names, .or_file = ".json"})
      .add("chunks", "N", "model chunks on each stage", &s.chunks,
           {.range = {0, 1024}, .shown = "1, or 2 for schedules of several", .derived = true})
      .add("bitwise", "",
           "the same bits of loss, weights and optimizer state on every mesh; on CPUs", &s.bitwise,
           {.on_resume = OnResume::ask})
      .add("tp-slices", "N",
           "with --bitwise: slices in which split layers are summed, on any mesh whose tp divides "
           "N",
           &s.tp_slices, {.range = {1, Slices::most}, .on_resume = OnResume::ask})
      .add("placement", "N,N,..",
           "layers (all, or those between first and last) on each stage and chunk", &s.placement,
           {.shown = "balanced by cost", .derived = true});
}

Settings launch_settings(LaunchOptions& o) {
  SettingGroup group("Ranks", OnResume::apart);
  return group
      .add("comm", "auto|nccl|mpi|threads",
           "how ranks run and communicate: MPI processes, NCCL, or threads of this process; auto: "
           "nccl where every rank has a GPU of its own, else mpi under a launcher",
           &o.comm, {.choices = {"auto", "nccl", "mpi", "threads"}})
      .add("ranks", "N", "ranks to start as threads, with --comm threads", &o.ranks,
           {.range = {0, 4096}, .shown = "1", .derived = true})
      .add("device", "cpu|cuda|cuda:N",
           "device of all tensors; cuda: one GPU per rank of a host, in order", &o.device,
           {.on_resume = OnResume::free})
      .add(
          "device-map", "auto|FILE",
          "place layers on GPUs, in host memory and in files of one process: by free memory, or as "
          "a JSON file says ({\"block0\": 0, \"block1\": \"cpu\", \"\": \"disk\"})",
          &o.device_map, {.shown = "none"})
      .add("nondeterministic", "",
           "on GPUs: atomics and kernels chosen by timing; faster, but not bitwise reproducible",
           &o.nondeterministic, {.on_resume = OnResume::free});
}

namespace {

Settings scaler_settings(optim::LossScaleOptions& o) {
  using Refill = optim::LossScaleOptions::Refill;
  SettingGroup group("Run", OnResume::say);
  double least = 0x1p-24;  // the smallest number of fp16
  return group
      .add("initial-loss-scale", "X", "dynamic loss scale at the start", &o.initial,
           {.range = {least, 1e14}})
      .add("min-loss-scale", "X", "smallest dynamic loss scale", &o.minimum,
           {.range = {least, 1e14}})
      .add("loss-scale-window", "N", "finite steps in a row after which it doubles", &o.window,
           {.range = {1, huge}})
      .add("hysteresis", "N", "the scale halves at the N-th overflow and every later one",
           &o.hysteresis, {.range = {1, huge}})
      .add("hysteresis-refill", "growth|good-step",
           "when that count resets: when the scale doubles, or after every finite step",
           choice(o.refill, {{"growth", Refill::on_growth}, {"good-step", Refill::on_good_step}}));
}

}  // namespace

Settings run_settings(TrainOptions& o) {
  SettingGroup group("Run", OnResume::apart);
  StepOptions& s = o.step;
  return group
      .add("config", "FILE", "TOML file whose keys are these flags; flags win over it", &o.config,
           {.shown = "none", .saved = false, .key = false})
      .add("deepspeed", "FILE",
           "DeepSpeed's JSON (ds_config.json), whose keys set these flags; it wins over --config, "
           "flags win over it",
           &o.deepspeed, {.shown = "none", .saved = false, .key = false})
      .add("out", "DIR", "run directory: configuration, metrics, checkpoints", &o.out,
           {.shown = "runs/<date>-<name>", .derived = true, .saved = false})
      .add("metrics", "FILE", "one JSON object per step", &o.metrics,
           {.shown = "OUT/metrics.jsonl", .derived = true, .saved = false})
      .add("profile", "[STEPS]",
           "trace what every rank does in these steps, such as 3 or 3-5 (alone: 3-5), in "
           "OUT/trace.json for ui.perfetto.dev",
           &o.profile, {.shown = "none", .alone = "3-5", .saved = false})
      .add("tensorboard", "", "also write event files for TensorBoard into OUT", &o.tensorboard)
      .add("ledger", "", "print communication volume and memory by kind at the end", &o.ledger)
      .add("val-every", "N", "steps between validations; 0: only at the end", &o.val_every)
      .add("check-replicas", "N",
           "compare what data-parallel replicas hold, bit for bit, every N steps and before each "
           "checkpoint; 0: never",
           &o.check_replicas)
      .add("workers", "N", "threads per rank that load batches ahead of the step; 0: none",
           &o.workers, {.range = {0, 64}})
      .add("seed", "N", "of weights, dropout and the order of samples", &s.seed,
           {.on_resume = OnResume::ask})
      .add("graph", "", "capture the step as a CUDA graph and replay it", &s.graph)
      .add("precision", "fp32|bf16|fp16",
           "of weights and activations; weight gradients and optimizer state stay fp32",
           choice(s.dtype, {{"fp32", f32}, {"bf16", bf16}, {"fp16", f16}}),
           {.on_resume = OnResume::ask})
      .add("loss-scale", "X", "fp16 loss scale; 0: dynamic", &s.loss_scale,
           {.range = {0, 1e14}, .on_resume = OnResume::say})
      .add(scaler_settings(s.dynamic_scale));
}

Settings memory_settings(StepOptions& s) {
  SettingGroup group("Memory", OnResume::free);
  return group
      .add("recompute", "NAME",
           "activation recomputation: off, selective (attention and activation function), block "
           "(all of a block but its input), block-split (as block, with the saved input sharded "
           "over tp)",
           choice(s.recompute, {{"off", Recompute::off},
                                {"selective", Recompute::selective},
                                {"block", Recompute::block},
                                {"block-split", Recompute::block_split}}))
      .add("offload", "off|optimizer|params",
           "what is kept in host memory between uses: nothing, optimizer state, or (with --zero 3) "
           "weights and gradients too; results are the same",
           choice(s.offload, {{"off", Offloaded::nothing},
                              {"optimizer", Offloaded::optimizer},
                              {"params", Offloaded::parameters}}))
      .add("offload-dir", "DIR",
           "keep it in files in DIR instead, which are removed when the run ends", &s.offload_dir,
           {.shown = "none"});
}

Settings checkpoint_settings(TrainOptions& o) {
  SettingGroup group("Checkpoints", OnResume::apart);
  return group
      .add("save-every", "N", "steps between checkpoints; 0: only at the end", &o.save_every)
      .add("keep", "N", "newest checkpoints to keep", &o.keep, {.range = {1, huge}})
      .add("keep-best", "",
           "save a checkpoint after each validation that reaches the lowest loss so far, and keep "
           "the best beside the newest",
           &o.keep_best)
      .add("save-async", "", "write checkpoints while training goes on, from a copy in host memory",
           &o.save_async)
      .add("resume", "auto|last-good|PATH",
           "continue from the newest checkpoint of the run directory (auto: if there is one), the "
           "newest undamaged one (last-good), or PATH: a checkpoint, or a run directory, whose "
           "newest is taken",
           &o.resume, {.shown = "start afresh", .derived = true, .saved = false})
      .add("resume-changed", "",
           "resume with another --global-batch, --precision, --seed, --bitwise or --tp-slices than "
           "the checkpoint's",
           &o.resume_changed, {.saved = false})
      .add("init", "CHECKPOINT",
           "initial weights: a checkpoint, or a run directory, whose newest is taken; its model "
           "settings and tokenizer become the defaults",
           &o.init, {.shown = "random", .derived = true})
      .add("init-new", "PATTERN;..",
           "parameters and buffers that --init leaves as the model makes them, such as "
           "\"head.*; *lora*\", whatever the checkpoint has of that name",
           &o.init_new, {.shown = "none"});
}

Settings train_settings(TrainOptions& o) {
  return joined({optimizer_settings(o), mesh_settings(o.step), launch_settings(o.launch),
                 run_settings(o), memory_settings(o.step), checkpoint_settings(o)});
}

std::map<std::string, std::string> values_of(const Settings& settings) {
  std::map<std::string, std::string> all;
  for (auto& s : settings) all[s.name] = literal(s);
  return all;
}

}  // namespace triax::parallel
