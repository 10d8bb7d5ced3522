#include "examples/minigpt/flag_groups.h"

#include <algorithm>

#include "core/check.h"
#include "core/files.h"
#include "parallel/pipeline/schedule.h"

namespace triax::minigpt {

namespace {

constexpr const char* recomputations[] = {"off", "selective", "block", "block-split"};

}  // namespace

Flags model_flags(ModelConfig& c) {
  const char* group = "Model";
  return {
      {"layers", group, "N", "transformer blocks", &c.layers, {1, huge}},
      {"heads", group, "N", "attention heads; must divide --width", &c.heads, {1, huge}},
      {"width", group, "N", "numbers that describe a token", &c.width, {1, huge}},
      {"context", group, "N", "tokens a position may look back on", &c.context, {1, huge}},
      {"dropout", group, "X", "part of activations left out in training", &c.dropout, {0, 1, true}},
      {"vocab",
       group,
       "N",
       "rows of the embedding; at least the tokens of the tokenizer",
       &c.vocab,
       {0, huge},
       {},
       "as many as the tokenizer has"},
  };
}

Flags data_flags(TrainConfig& c) {
  const char* group = "Data";
  return {
      {"data",
       group,
       "FILE",
       "text to train on, UTF-8",
       &c.data,
       {},
       {},
       "the Jargon File, or this repository's own sources"},
      {"val-fraction",
       group,
       "X",
       "part of the text, at its end, held out for validation",
       &c.val_fraction,
       {0, 1, true}},
  };
}

Flags optimisation_flags(TrainConfig& c) {
  const char* group = "Optimisation";
  return {
      {"steps", group, "N", "steps to train", &c.steps, {1}},
      {"micro-batch",
       group,
       "N",
       "sequences in one micro-batch of one replica",
       &c.micro_batch,
       {1, huge}},
      {"global-batch",
       group,
       "N",
       "sequences in one step over all replicas; gradients are accumulated over global / (micro x "
       "dp) micro-batches",
       &c.global_batch,
       {0, huge},
       {},
       "micro-batch x dp"},
      {"lr", group, "X", "learning rate of AdamW after warmup", &c.lr},
      {"min-lr", group, "X", "learning rate at the end of the cosine", &c.min_lr},
      {"warmup",
       group,
       "N",
       "steps in which the learning rate rises from 0",
       &c.warmup,
       {0},
       {},
       "100, or half of fewer than 200 steps"},
      {"weight-decay", group, "X", "decay of matrices, times the learning rate", &c.weight_decay},
      {"beta1", group, "X", "memory of the mean of gradients", &c.beta1, {0, 1, true}},
      {"beta2", group, "X", "memory of the mean of squared gradients", &c.beta2, {0, 1, true}},
      {"clip", group, "X", "largest norm of the gradient; 0: any", &c.clip},
  };
}

Flags mesh_flags(MeshConfig& c) {
  const char* group = "Mesh";
  return {
      {"dp",
       group,
       "N",
       "data-parallel replicas",
       &c.dp,
       {0, huge},
       {},
       "what pp and tp leave of the ranks started"},
      {"pp", group, "N", "pipeline stages that share the layers", &c.pp, {1, huge}},
      {"tp",
       group,
       "N",
       "tensor-parallel ranks that share each layer; must divide --heads",
       &c.tp,
       {1, huge}},
      {"sequence-parallel", group, "", "between attention and MLP, share the token rows over tp",
       &c.sequence_parallel},
      {"zero",
       group,
       "0|1|2|3",
       "what dp shares out (ZeRO): 1 optimizer state, 2 gradients too, 3 weights too",
       &c.zero,
       {0, 3}},
      {"schedule",
       group,
       "NAME",
       "order of micro-batches in the pipeline: gpipe, 1f1b, interleaved, zb-h1, zb-interleaved",
       &c.schedule,
       {},
       parallel::schedule_names()},
      {"chunks",
       group,
       "N",
       "pieces of the model on each stage, for the interleaved schedules",
       &c.chunks,
       {0, huge},
       {},
       "2 for them, else 1"},
      {"placement",
       group,
       "N,N,..",
       "blocks on each stage (and chunk), in order",
       &c.placement,
       {},
       {},
       "balanced by cost"},
  };
}

Flags rank_flags(std::string& comm, int64_t& ranks, std::string& device) {
  const char* group = "Ranks";
  return {
      {"comm",
       group,
       "auto|nccl|mpi|threads",
       "what ranks are, processes under mpirun or srun or threads of this one, and what moves "
       "their "
       "tensors; auto: nccl where every rank has a GPU of its own, else mpi where a launcher "
       "started "
       "us",
       &comm,
       {},
       {"auto", "nccl", "mpi", "threads"}},
      {"ranks",
       group,
       "N",
       "ranks to start as threads, with --comm threads",
       &ranks,
       {0, 4096},
       {},
       "1"},
      {"device", group, "cpu|cuda|cuda:N",
       "what tensors live on; cuda: on each host its first rank takes GPU 0, the next GPU 1, ..",
       &device},
  };
}

Flags run_flags(TrainConfig& c) {
  const char* group = "Run";
  return {
      {"config", group, "FILE", config_help, &c.config, {}, {}, "none", false},
      {"out",
       group,
       "DIR",
       "run directory: resolved configuration, metrics, checkpoints",
       &c.out,
       {},
       {},
       "runs/<date>-<name of the data>"},
      {"metrics", group, "FILE", "one JSON object a step", &c.metrics, {}, {}, "OUT/metrics.jsonl"},
      {"ledger", group, "", "print what was communicated and held in memory", &c.ledger},
      {"val-every", group, "N", "steps between validations; 0: only at the end", &c.val_every, {0}},
      {"seed", group, "N", "of weights, dropout and the order of samples", &c.seed},
      {"graph", group, "", "queue each step at one stroke, as a CUDA graph", &c.graph},
      {"nondeterministic", group, "",
       "on GPUs: kernels chosen by timing them and sums by atomics, faster, and other bits in "
       "every "
       "run",
       &c.nondeterministic},
      {"precision",
       group,
       "fp32|bf16|fp16",
       "of weights and activations; gradients, sums and optimizer state are fp32 always",
       &c.precision,
       {},
       {"fp32", "bf16", "fp16"}},
      {"loss-scale",
       group,
       "X",
       "factor on the loss that keeps small fp16 gradients above zero; 0: found as training goes",
       &c.loss_scale,
       {0, 1e14}},
  };
}

Flags memory_flags(TrainConfig& c) {
  const char* group = "Memory";
  return {
      {"recompute",
       group,
       "NAME",
       "what backward makes again instead of keeping it: off, selective (what attention and GELU "
       "return), block (all of a block but its input), block-split (and that is shared out over "
       "tp)",
       &c.recompute,
       {},
       {std::begin(recomputations), std::end(recomputations)}},
      {"offload", group, "off|optimizer|DIR",
       "where optimizer state is between steps: beside the weights, in the host's memory, or in "
       "files in DIR that go when the run ends; the results are the same",
       &c.offload},
  };
}

Flags checkpoint_flags(TrainConfig& c) {
  const char* group = "Checkpoints";
  return {
      {"save-every",
       group,
       "N",
       "steps between checkpoints; 0: only at the end",
       &c.save_every,
       {0}},
      {"keep", group, "N", "checkpoints to keep", &c.keep, {1, huge}},
      {"resume",
       group,
       "auto|last-good|PATH",
       "continue from the latest checkpoint of the run directory (auto: if there is one), from the "
       "latest undamaged one, or from this one",
       &c.resume,
       {},
       {},
       "start afresh"},
  };
}

Recompute recompute_of(const std::string& name) {
  auto* found = std::find(std::begin(recomputations), std::end(recomputations), name);
  check_input(found != std::end(recomputations), Exit::config, "recompute is `{}`; expected {}",
              printable(name), fmt::join(recomputations, ", "));
  return Recompute(found - std::begin(recomputations));
}

}  // namespace triax::minigpt
