#include "examples/minigpt/config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/check.h"
#include "core/files.h"
#include "parallel/pipeline/schedule.h"

namespace triax::minigpt {

namespace {

constexpr double huge = 2147483647;  // products of two such sizes fit 64 bits

constexpr const char* config_help = "TOML file whose keys are these flags; flags win over it";

#ifdef TRIAX_CORPUS
constexpr const char* corpus = TRIAX_CORPUS;
#else
constexpr const char* corpus = "";
#endif

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
       "the corpus made from this repository's own sources"},
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
      {"warmup", group, "N", "steps in which the learning rate rises from 0", &c.warmup, {0}},
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

Flags rank_flags(std::string& comm, int64_t& ranks) {
  const char* group = "Ranks";
  return {
      {"comm",
       group,
       "auto|mpi|threads",
       "what ranks are: processes under mpirun or srun, or threads of this one; auto: mpi where a "
       "launcher started us",
       &comm,
       {},
       {"auto", "mpi", "threads"}},
      {"ranks",
       group,
       "N",
       "ranks to start as threads, with --comm threads",
       &ranks,
       {0, 4096},
       {},
       "1"},
  };
}

Flags memory_flags(TrainConfig& c) {
  const char* group = "Memory";
  return {
      {"offload", group, "off|optimizer|DIR",
       "where optimizer state is between steps: beside the weights, in the host's memory, or in "
       "files in DIR that go when the run ends; the results are the same",
       &c.offload},
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
      {"device", group, "cpu|cuda", "what tensors live on", &c.device, {}, {"cpu", "cuda"}},
      {"precision",
       group,
       "fp32|bf16|fp16",
       "of weights and activations; gradients, sums and optimizer state are fp32 always",
       &c.precision,
       {},
       {"fp32", "bf16", "fp16"}},
      {"loss-scale", group, "X",
       "factor on the loss that keeps small fp16 gradients above zero; 0: found as training goes",
       &c.loss_scale},
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

}  // namespace

Verb train_verb(TrainConfig& c) {
  Verb verb{"train", "Trains a transformer on the characters of a text.", {}};
  for (Flags flags :
       {model_flags(c.model), data_flags(c), optimisation_flags(c), mesh_flags(c.mesh),
        memory_flags(c), rank_flags(c.comm, c.ranks), run_flags(c), checkpoint_flags(c)}) {
    verb.flags.insert(verb.flags.end(), flags.begin(), flags.end());
  }
  return verb;
}

Verb sample_verb(SampleConfig& c) {
  const char* group = "Sampling";
  Flags flags{
      {"checkpoint",
       group,
       "DIR",
       "checkpoint to read: RUN/step-N",
       &c.checkpoint,
       {},
       {},
       "none, must be given"},
      {"prompt", group, "TEXT", "text to continue", &c.prompt, {}, {}, "a line break"},
      {"tokens", group, "N", "tokens to write", &c.tokens, {0, huge}},
      {"temperature", group, "X", "what logits are divided by; 0: always the most likely token",
       &c.temperature},
      {"top-k",
       group,
       "N",
       "choose among the N most likely tokens; 0: among all",
       &c.top_k,
       {0, huge}},
      {"seed", group, "N", "of the choices", &c.seed},
      {"config", "Run", "FILE", config_help, &c.config, {}, {}, "none", false},
  };
  for (auto& flag : mesh_flags(c.mesh))
    if (flag.name == "pp" || flag.name == "tp") flags.push_back(flag);
  for (auto& flag : rank_flags(c.comm, c.ranks)) flags.push_back(flag);
  return {"sample", "Continues a text with a trained model.", std::move(flags)};
}

Verb parity_verb(ParityConfig& c) {
  TrainConfig& t = c.train;
  t.model = {.layers = 4, .heads = 4, .width = 32, .context = 16, .dropout = 0.1};
  t.micro_batch = 2;
  t.global_batch = 16;
  t.steps = 4;
  t.warmup = 0;
  t.comm = "threads";
  Flags flags{{"mesh", "Mesh", "DPxPPxTP", "ranks on each axis", &c.mesh}};
  for (auto& flag : mesh_flags(t.mesh))
    if (flag.name != "dp" && flag.name != "pp" && flag.name != "tp") flags.push_back(flag);
  auto config = [](const Flag& f) { return f.name == "config" || f.name == "seed"; };
  for (const Flags& more :
       {model_flags(t.model), data_flags(t), optimisation_flags(t), memory_flags(t), run_flags(t)})
    for (auto& flag : more)
      if (flag.group != std::string("Run") || config(flag)) flags.push_back(flag);
  std::erase_if(flags, [](const Flag& f) { return f.name == "val-fraction"; });
  return {"parity",
          "Trains a small model on one rank and on a mesh of threads, and finds the first tensor "
          "in which they differ.",
          std::move(flags)};
}

Verb plan_verb(PlanConfig& c) {
  TrainConfig& t = c.train;
  t.mesh.dp = t.mesh.pp = t.mesh.tp = 0;
  t.mesh.zero = -1;
  const char* group = "Plan";
  Flags flags{
      {"ranks", group, "N", "ranks to share out", &c.ranks, {0, 65536}, {}, "those of the mesh"},
      {"hardware", group, "NAME", "what a rank is: cpu (one core), a100, h100, h200", &c.hardware},
      {"memory", group, "SIZE", "of one rank, like 80GB", &c.memory, {}, {}, "the hardware's"},
      {"node", group, "N", "ranks that are near each other", &c.node, {1, 65536}},
      {"top", group, "N", "rows to print", &c.top, {1, huge}},
      {"check", group, "", "train a step of the best on threads here, and compare the memory",
       &c.check},
  };
  for (const Flags& more : {model_flags(t.model), data_flags(t), mesh_flags(t.mesh),
                            optimisation_flags(t), memory_flags(t), run_flags(t)})
    for (const Flag& flag : more) {
      constexpr const char* axes[] = {"dp", "pp", "tp"};
      constexpr const char* others[] = {"data",   "micro-batch", "global-batch",
                                        "config", "precision",   "offload"};
      auto is = [&](const char* name) { return flag.name == name; };
      bool axis = std::any_of(std::begin(axes), std::end(axes), is), zero = is("zero");
      if (flag.group != std::string("Model") && flag.group != std::string("Mesh") &&
          std::none_of(std::begin(others), std::end(others), is))
        continue;
      flags.push_back(flag);
      if (axis) flags.back().range.min = 0, flags.back().shown = "all that the ranks allow";
      if (zero) flags.back().range.min = -1, flags.back().shown = "all";
    }
  return {"plan", "Says what each mesh would hold, and about how fast it would be.",
          std::move(flags)};
}

TrainConfig resolved(const ParityConfig& c) {
  TrainConfig t = c.train;
  int64_t* sizes[] = {&t.mesh.dp, &t.mesh.pp, &t.mesh.tp};
  std::string_view left = c.mesh;
  for (int64_t* size : sizes) {
    auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), *size);
    bool last = size == sizes[2], closed = end == left.data() + left.size();
    check_input(error == std::errc() && *size >= 1 && *size <= 64 &&
                    (last ? closed : !closed && *end == 'x'),
                Exit::config, "mesh `{}`; expected dp x pp x tp, each from 1 to 64, like 2x2x2",
                printable(c.mesh));
    left = left.substr(size_t(end - left.data()) + (last ? 0 : 1));
  }
  t.ranks = t.mesh.dp * t.mesh.pp * t.mesh.tp;
  return t;
}

std::string flags_page() {
  TrainConfig train;
  SampleConfig sample;
  ParityConfig parity;
  PlanConfig plan;
  return "# The flags of minigpt\n\nMade by `scripts/cli_docs.sh`; do not edit. Every flag is also "
         "a key of the TOML file that\n`--config` names: `--micro-batch 8` is `micro-batch = 8`, "
         "`--data FILE` is `data = \"FILE\"`.\n\n" +
         markdown(train_verb(train)) + "\n" + markdown(sample_verb(sample)) + "\n" +
         markdown(parity_verb(parity)) + "\n" + markdown(plan_verb(plan));
}

void resolve(TrainConfig& c, int64_t ranks, const std::string& date) {
  if (c.data.empty()) c.data = corpus;
  MeshConfig& m = c.mesh;
  if (m.dp == 0) m.dp = std::max<int64_t>(1, ranks / (m.pp * m.tp));
  if (m.chunks == 0) m.chunks = m.schedule.ends_with("interleaved") ? 2 : 1;
  if (c.global_batch == 0) c.global_batch = c.micro_batch * m.dp;
  if (c.out.empty()) {
    c.out = fmt::format("runs/{}-{}", date, std::filesystem::path(c.data).stem().string());
  }
  if (c.metrics.empty()) c.metrics = (std::filesystem::path(c.out) / "metrics.jsonl").string();
}

std::string to_toml(const TrainConfig& config) {
  TrainConfig copy = config;  // the table holds pointers to what can be assigned
  return to_toml(train_verb(copy).flags);
}

}  // namespace triax::minigpt
