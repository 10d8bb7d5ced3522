#include "parallel/train/train_settings.h"

namespace triax::parallel {
namespace {

constexpr auto say = OnResume::say, free = OnResume::free;

}  // namespace

Settings optimizer_settings(TrainOptions& o) {
  const char* group = "Batch and optimizer";
  StepOptions& s = o.step;
  return {
      {.name = "steps", .group = group, .value = "N", .help = "training steps", .field = &o.steps,
       .on_resume = say},
      {.name = "micro-batch", .group = group, .value = "N",
       .help = "samples in one micro-batch of one replica", .field = &s.micro_batch,
       .range = {1, huge}, .on_resume = free},
      {.name = "global-batch", .group = group, .value = "N",
       .help = "samples in one step over all replicas; gradients are accumulated over "
               "global / (micro x dp) micro-batches",
       .field = &s.global_batch, .range = {0, huge}, .shown = "micro-batch x dp", .derived = true},
      {.name = "lr", .group = group, .value = "X", .help = "learning rate after warm-up",
       .field = &o.lr.peak, .on_resume = say},
      {.name = "min-lr", .group = group, .value = "X",
       .help = "learning rate at the end of the cosine schedule", .field = &o.lr.low,
       .on_resume = say},
      {.name = "warmup", .group = group, .value = "N",
       .help = "steps of linear learning-rate warm-up from 0", .field = &o.lr.warmup,
       .range = {-1}, .shown = "100, or half of fewer than 200 steps", .on_resume = say,
       .derived = true},
      {.name = "weight-decay", .group = group, .value = "X",
       .help = "AdamW weight decay, of matrices only", .field = &s.adamw.weight_decay,
       .on_resume = say},
      {.name = "beta1", .group = group, .value = "X", .help = "AdamW beta1",
       .field = &s.adamw.beta1, .range = {0, 1, true}, .on_resume = say},
      {.name = "beta2", .group = group, .value = "X", .help = "AdamW beta2",
       .field = &s.adamw.beta2, .range = {0, 1, true}, .on_resume = say},
      {.name = "clip", .group = group, .value = "X",
       .help = "gradient clipping: largest norm of the gradient; 0: none", .field = &s.clip,
       .on_resume = say},
  };
}

Settings mesh_settings(StepOptions& s) {
  const char* group = "Mesh";
  std::vector<std::string> names;
  std::string list;
  for (auto& [name, schedule] : s.schedules)
    names.push_back(name), list += (list.empty() ? "" : ", ") + name;
  return {
      {.name = "dp", .group = group, .value = "N", .help = "data-parallel replicas",
       .field = &s.mesh.dp, .range = {0, huge}, .shown = "what pp and tp leave of the ranks started",
       .on_resume = free, .derived = true},
      {.name = "pp", .group = group, .value = "N", .help = "pipeline stages", .field = &s.mesh.pp,
       .range = {1, huge}, .on_resume = free},
      {.name = "tp", .group = group, .value = "N",
       .help = "tensor-parallel ranks that split each layer", .field = &s.mesh.tp,
       .range = {1, huge}, .on_resume = free},
      {.name = "sequence-parallel", .group = group,
       .help = "shard the rows outside of split layers over tp (sequence parallelism)",
       .field = &s.sequence_parallel, .on_resume = free},
      {.name = "zero", .group = group, .value = "0|1|2|3",
       .help = "ZeRO stage: what dp shards; 1 optimizer state, 2 gradients too, 3 weights too",
       .field = choice(s.zero, {{"0", Zero::off},
                                {"1", Zero::optimizer},
                                {"2", Zero::gradients},
                                {"3", Zero::parameters}}),
       .on_resume = free},
      {.name = "schedule", .group = group, .value = "NAME", .help = "pipeline schedule: " + list,
       .field = &s.schedule, .choices = names, .on_resume = free},
      {.name = "chunks", .group = group, .value = "N",
       .help = "model chunks on each stage, for the interleaved schedules", .field = &s.chunks,
       .range = {0, huge}, .shown = "2 for them, else 1", .on_resume = free, .derived = true},
      {.name = "placement", .group = group, .value = "N,N,..",
       .help = "blocks (or all layers) on each stage and chunk, in order", .field = &s.placement,
       .shown = "balanced by cost", .on_resume = free, .derived = true},
  };
}

Settings launch_settings(LaunchOptions& o) {
  const char* group = "Ranks";
  return {
      {.name = "comm", .group = group, .value = "auto|nccl|mpi|threads",
       .help = "how ranks run and communicate: MPI processes, NCCL, or threads of this process; "
               "auto: nccl where every rank has a GPU of its own, else mpi under a launcher",
       .field = &o.comm, .choices = {"auto", "nccl", "mpi", "threads"}, .on_resume = free},
      {.name = "ranks", .group = group, .value = "N",
       .help = "ranks to start as threads, with --comm threads", .field = &o.ranks,
       .range = {0, 4096}, .shown = "1", .on_resume = free, .derived = true},
      {.name = "device", .group = group, .value = "cpu|cuda|cuda:N",
       .help = "device of all tensors; cuda: one GPU per rank of a host, in order",
       .field = &o.device, .on_resume = free},
      {.name = "nondeterministic", .group = group,
       .help = "on GPUs: atomics and kernels chosen by timing; faster, but not bitwise "
               "reproducible",
       .field = &o.nondeterministic, .on_resume = free},
  };
}

Settings run_settings(TrainOptions& o) {
  const char* group = "Run";
  StepOptions& s = o.step;
  return {
      {.name = "config", .group = group, .value = "FILE",
       .help = "TOML file whose keys are these flags; flags win over it", .field = &o.config,
       .shown = "none", .key = false, .on_resume = free, .saved = false},
      {.name = "out", .group = group, .value = "DIR",
       .help = "run directory: configuration, metrics, checkpoints", .field = &o.out,
       .shown = "runs/<date>-<name>", .on_resume = free, .derived = true, .saved = false},
      {.name = "metrics", .group = group, .value = "FILE", .help = "one JSON object per step",
       .field = &o.metrics, .shown = "OUT/metrics.jsonl", .on_resume = free, .derived = true,
       .saved = false},
      {.name = "ledger", .group = group,
       .help = "print communication volume and memory by kind at the end", .field = &o.ledger,
       .on_resume = free},
      {.name = "val-every", .group = group, .value = "N",
       .help = "steps between validations; 0: only at the end", .field = &o.val_every,
       .on_resume = free},
      {.name = "workers", .group = group, .value = "N",
       .help = "threads per rank that load batches ahead of the step; 0: none",
       .field = &o.workers, .range = {0, 64}, .on_resume = free},
      {.name = "seed", .group = group, .value = "N",
       .help = "of weights, dropout and the order of samples", .field = &s.seed},
      {.name = "graph", .group = group, .help = "capture the step as a CUDA graph and replay it",
       .field = &s.graph, .on_resume = free},
      {.name = "precision", .group = group, .value = "fp32|bf16|fp16",
       .help = "of weights and activations; gradients, reductions and optimizer state stay fp32",
       .field = choice(s.dtype, {{"fp32", f32}, {"bf16", bf16}, {"fp16", f16}})},
      {.name = "loss-scale", .group = group, .value = "X",
       .help = "fp16 loss scale; 0: dynamic", .field = &s.loss_scale, .range = {0, 1e14},
       .on_resume = say},
  };
}

Settings memory_settings(StepOptions& s) {
  const char* group = "Memory";
  return {
      {.name = "recompute", .group = group, .value = "NAME",
       .help = "activation recomputation: off, selective (attention and activation function), "
               "block (all of a block but its input), block-split (as block, with the saved input "
               "sharded over tp)",
       .field = choice(s.recompute, {{"off", Recompute::off},
                                     {"selective", Recompute::selective},
                                     {"block", Recompute::block},
                                     {"block-split", Recompute::block_split}}),
       .on_resume = free},
      {.name = "offload", .group = group, .value = "off|optimizer|DIR",
       .help = "where optimizer state is kept between steps: with the weights, in host memory, or "
               "in files in DIR that are removed when the run ends; results are the same",
       .field = &s.offload, .on_resume = free},
  };
}

Settings checkpoint_settings(TrainOptions& o) {
  const char* group = "Checkpoints";
  return {
      {.name = "save-every", .group = group, .value = "N",
       .help = "steps between checkpoints; 0: only at the end", .field = &o.save_every,
       .on_resume = free},
      {.name = "keep", .group = group, .value = "N", .help = "checkpoints to keep",
       .field = &o.keep, .range = {1, huge}, .on_resume = free},
      {.name = "resume", .group = group, .value = "auto|last-good|PATH",
       .help = "continue from the newest checkpoint of the run directory (auto: if there is one), "
               "from the newest undamaged one, or from the given one",
       .field = &o.resume, .shown = "start afresh", .on_resume = free, .derived = true,
       .saved = false},
  };
}

Settings train_settings(TrainOptions& o) {
  Settings all;
  for (Settings some : {optimizer_settings(o), mesh_settings(o.step), launch_settings(o.launch),
                        run_settings(o), memory_settings(o.step), checkpoint_settings(o)})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::map<std::string, std::string> values_of(const Settings& settings) {
  std::map<std::string, std::string> all;
  for (auto& s : settings) all[s.name] = literal(s);
  return all;
}

}  // namespace triax::parallel
