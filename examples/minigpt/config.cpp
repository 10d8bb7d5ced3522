#include "examples/minigpt/config.h"

#include <algorithm>

#include "core/check.h"
#include "examples/minigpt/model.h"
#include "examples/minigpt/sample.h"
#include "parallel/train/train_settings.h"

namespace triax::minigpt {
namespace {

using parallel::huge;
using parallel::OnResume;

/// The divisors of n that lie nearest to `wanted`, at most `count`, ascending.
std::vector<int64_t> nearest_divisors(int64_t n, int64_t wanted, size_t count) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    divisors.push_back(d);
    if (d != n / d) divisors.push_back(n / d);
  }
  auto distance = [&](int64_t d) { return d > wanted ? d - wanted : wanted - d; };
  std::sort(divisors.begin(), divisors.end(),
            [&](int64_t a, int64_t b) { return distance(a) < distance(b); });
  divisors.resize(std::min(divisors.size(), count));
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

}  // namespace

void check_model(const ModelConfig& m) {
  double width = double(m.width), parameters = double(m.layers) * 12 * width * width;
  check_input(parameters < 1e15, Exit::config,
              "layers={} of width={} are {:.1e} parameters\n"
              "  Expected fewer than 1e15 (12 x layers x width squared).",
              m.layers, m.width, parameters);
  if (m.width % m.heads == 0) return;
  fail(Exit::config,
       "heads={} does not divide width={}\n"
       "  Each head holds width/heads columns. Valid heads for this width{}: {}.",
       m.heads, m.width, m.heads > 12 || m.width > 1000 ? ", nearest" : "",
       fmt::join(nearest_divisors(m.width, m.heads, 12), ", "));
}

parallel::Settings settings(Config& c) {
  const char* group = "Model";
  ModelConfig& m = c.model;
  parallel::Settings all{
      {.name = "layers", .group = group, .value = "N", .help = "transformer blocks",
       .field = &m.layers, .range = {1, huge}},
      {.name = "heads", .group = group, .value = "N", .help = "attention heads", .field = &m.heads,
       .range = {1, huge}},
      {.name = "width", .group = group, .value = "N", .help = "embedding size (d_model)",
       .field = &m.width, .range = {1, huge}},
      {.name = "context", .group = group, .value = "N", .help = "context length in tokens",
       .field = &m.context, .range = {1, huge}},
      {.name = "dropout", .group = group, .value = "P", .help = "dropout probability",
       .field = &m.dropout, .range = {0, 1, true}, .on_resume = OnResume::say},
      {.name = "vocab", .group = group, .value = "N", .help = "rows of the embedding table",
       .field = &m.vocab, .range = {0, huge}, .shown = "the tokenizer's", .derived = true}};
  for (auto& s : text::text_settings(c.text)) all.push_back(s);
  return all;
}

parallel::Task task(const Config& c) {
  check_model(c.model);
  auto text = text::read(c.text, c.model.context);
  ModelConfig model = c.model;
  model.vocab = text::vocabulary(model.vocab, text.tokenizer);
  parallel::Task task = text.task(text::file_of(c.text));
  task.build = [model](auto& tp) { return std::make_unique<Gpt>(model, tp); };
  task.description += fmt::format("{} blocks, {} heads, width {}, context {}, vocabulary {}\n",
                                  model.layers, model.heads, model.width, model.context,
                                  model.vocab);
  return task;
}

parallel::Verb sample_verb(SampleConfig& c) {
  const char* group = "Sampling";
  parallel::Settings all{
      {.name = "checkpoint", .group = group, .value = "DIR",
       .help = "checkpoint RUN/step-N, or a run directory, whose newest is taken",
       .field = &c.checkpoint, .shown = "none, must be given"},
      {.name = "prompt", .group = group, .value = "TEXT", .help = "text to continue",
       .field = &c.prompt, .shown = "a line break"},
      {.name = "tokens", .group = group, .value = "N", .help = "tokens to generate",
       .field = &c.tokens, .range = {0, huge}},
      {.name = "temperature", .group = group, .value = "X",
       .help = "divides the logits; 0: always the most likely token", .field = &c.temperature},
      {.name = "top-k", .group = group, .value = "N",
       .help = "sample among the N most likely tokens; 0: among all", .field = &c.top_k,
       .range = {0, huge}},
      {.name = "seed", .group = group, .value = "N", .help = "random seed of the choices",
       .field = &c.seed},
      {.name = "config", .group = "Run", .value = "FILE",
       .help = "TOML file whose keys are these flags; flags win over it", .field = &c.config,
       .shown = "none", .key = false},
      {.name = "pp", .group = "Mesh", .value = "N", .help = "pipeline stages", .field = &c.pp,
       .range = {1, huge}},
      {.name = "tp", .group = "Mesh", .value = "N",
       .help = "tensor-parallel ranks that split each layer", .field = &c.tp, .range = {1, huge}}};
  for (auto& s : parallel::launch_settings(c.launch))
    if (s.name != "nondeterministic") all.push_back(s);
  return {"sample", "Continues a text with a trained model.", all,
          {"minigpt sample --checkpoint runs/mine --prompt \"Once \" --tokens 100"}};
}

parallel::ProgramOptions program_options(Config& c, SampleConfig& s) {
  return {.name = "minigpt",
          .what = "Trains a transformer on the characters of a text.",
          .settings = settings(c),
          .task = [&c] { return task(c); },
          .parity_defaults =
              [&c](parallel::TrainOptions& o) {
                c.model = {.layers = 4, .heads = 4, .width = 32, .context = 16, .dropout = 0.1};
                o.step.micro_batch = 2, o.step.global_batch = 16;
                o.steps = 4, o.lr.warmup = 0;
              },
          .verbs = {{sample_verb(s), [&s](int argc, char** argv) {
                       parallel::on_ranks(s.launch, argc, argv,
                                          [&](auto& world) { sample(s, world); });
                       return 0;
                     }}}};
}

}  // namespace triax::minigpt
