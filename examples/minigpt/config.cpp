#include "examples/minigpt/config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/check.h"
#include "core/files.h"
#include "examples/minigpt/flag_groups.h"
#include "examples/minigpt/hardware.h"

namespace triax::minigpt {

namespace {

#ifdef TRIAX_CORPUS
constexpr const char* corpus = TRIAX_CORPUS;
#else
constexpr const char* corpus = "";
#endif

}  // namespace

Verb train_verb(TrainConfig& c) {
  Verb verb{"train", "Trains a transformer on the characters of a text.", {}};
  for (Flags flags : {model_flags(c.model), data_flags(c), optimisation_flags(c),
                      mesh_flags(c.mesh), rank_flags(c.comm, c.ranks, c.device), run_flags(c),
                      memory_flags(c), checkpoint_flags(c)}) {
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
  for (auto& flag : rank_flags(c.comm, c.ranks, c.device)) flags.push_back(flag);
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
  for (auto& flag : rank_flags(t.comm, t.ranks, t.device))
    if (flag.name == "device") flags.push_back(flag);
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
      {"hardware",
       group,
       "NAME",
       "what a rank is: cpu (one core), a100, h100, h200",
       &c.hardware,
       {},
       hardware_names()},
      {"memory", group, "SIZE", "of one rank, like 80GB", &c.memory, {}, {}, "the hardware's"},
      {"node", group, "N", "ranks that are near each other", &c.node, {1, 65536}},
      {"top", group, "N", "rows to print", &c.top, {1, huge}},
      {"check", group, "", "train a step of the best on threads here, and compare the memory",
       &c.check},
  };
  for (const Flags& whole : {model_flags(t.model), mesh_flags(t.mesh), memory_flags(t)})
    flags.insert(flags.end(), whole.begin(), whole.end());
  for (Flag& flag : flags) {
    if (flag.name == "dp" || flag.name == "pp" || flag.name == "tp")
      flag.range.min = 0, flag.shown = "all that the ranks allow";
    if (flag.name == "zero") flag.range.min = -1, flag.shown = "all";
  }
  for (const Flags& some : {data_flags(t), optimisation_flags(t), run_flags(t)})
    for (const Flag& flag : some)
      for (const char* name : {"data", "micro-batch", "global-batch", "precision", "config"})
        if (flag.name == name) flags.push_back(flag);
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
  if (c.warmup == unset) c.warmup = std::min<int64_t>(100, c.steps / 2);
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
