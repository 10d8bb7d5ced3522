#include "examples/minigpt/config.h"

#include <algorithm>

#include "core/check.h"
#include "examples/minigpt/model.h"
#include "examples/minigpt/sample.h"
#include "parallel/train/options.h"

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
       join(nearest_divisors(m.width, m.heads, 12), ", "));
}

parallel::Settings settings(Config& c) {
  parallel::SettingGroup group("Model");
  ModelConfig& m = c.model;
  return group.add("layers", "N", "transformer blocks", &m.layers, {.range = {1, huge}})
      .add("heads", "N", "attention heads", &m.heads, {.range = {1, huge}})
      .add("width", "N", "embedding size (d_model)", &m.width, {.range = {1, huge}})
      .add("context", "N", "context length in tokens", &m.context, {.range = {1, huge}})
      .add("dropout", "P", "dropout probability", &m.dropout,
           {.range = {0, 1, true}, .on_resume = OnResume::say})
      .add("vocab", "N", "rows of the embedding table", &m.vocab,
           {.range = {0, huge}, .shown = "the tokenizer's", .derived = true})
      .add(text::text_settings(c.text));
}

parallel::Task task(const Config& c) {
  check_model(c.model);
  auto text = text::read(c.text, c.model.context);
  ModelConfig model = c.model;
  model.vocab = text::vocabulary(model.vocab, text.tokenizer);
  parallel::Task task = text.task();
  task.build = [model](auto& tp) { return std::make_unique<Gpt>(model, tp); };
  task.description +=
      fmt::format("{} blocks, {} heads, width {}, context {}, vocabulary {}\n", model.layers,
                  model.heads, model.width, model.context, model.vocab);
  return task;
}

parallel::Verb sample_verb(SampleConfig& c) {
  parallel::SettingGroup group("Sampling");
  group
      .add("checkpoint", "DIR", "checkpoint RUN/step-N, or a run directory, whose newest is taken",
           &c.checkpoint, {.shown = "none, must be given"})
      .add("weights", "trained|average",
           "weights as trained, or their moving average, of a run with --average",
           choice(c.weights, {{"trained", parallel::Weights::trained},
                              {"average", parallel::Weights::average}}))
      .add("prompt", "TEXT", "text to continue", &c.prompt, {.shown = "a line break"})
      .add("tokens", "N", "tokens to generate", &c.tokens, {.range = {0, huge}})
      .add("temperature", "X", "divides the logits; 0: always the most likely token",
           &c.temperature)
      .add("top-k", "N", "sample among the N most likely tokens; 0: among all", &c.top_k,
           {.range = {0, huge}})
      .add("seed", "N", "random seed of the choices", &c.seed)
      .add(parallel::SettingGroup("Run").add(
          "config", "FILE", "TOML file whose keys are these flags; flags win over it", &c.config,
          {.shown = "none", .key = false}))
      .add(parallel::SettingGroup("Mesh")
               .add("pp", "N", "pipeline stages", &c.pp, {.range = {1, huge}})
               .add("tp", "N", "tensor-parallel ranks that split each layer", &c.tp,
                    {.range = {1, huge}}));
  return {"sample",
          "Continues a text with a trained model.",
          parallel::joined({group, without(parallel::launch_settings(c.launch),
                                           {"nondeterministic", "device-map"})}),
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
