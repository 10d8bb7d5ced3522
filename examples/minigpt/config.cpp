#include "examples/minigpt/config.h"

#include <algorithm>

#include "examples/minigpt/model.h"
#include "triax/core/check.h"
#include "triax/parallel/train/options/groups.h"
#include "triax/parallel/train/options/options.h"

namespace triax::minigpt {
namespace {

using parallel::huge;
using parallel::OnResume;

/// Returns the divisors of n that are nearest to `wanted`, at most `count`, ascending.
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

parallel::Settings model_settings(ModelConfig& m) {
  return parallel::SettingGroup("Model")
      .add("layers|num-layers|n-layers|n-layer|depth", "N", "transformer blocks", &m.layers,
           {.range = {1, huge}})
      .add("heads|num-heads|n-heads|n-head|num-attention-heads", "N", "attention heads", &m.heads,
           {.range = {1, huge}})
      .add("width|d-model|hidden-size|embedding-size|n-embd|embed-dim|dim", "N",
           "embedding size (d_model)", &m.width, {.range = {1, huge}})
      .add("context|context-length|seq-len|seq-length|sequence-length|block-size", "N",
           "context length in tokens", &m.context, {.range = {1, huge}})
      .add("dropout", "P", "dropout probability", &m.dropout,
           {.range = {0, 1, true}, .on_resume = OnResume::say})
      .add("vocab|vocab-size", "N", "rows of the embedding table", &m.vocab,
           {.range = {0, huge}, .shown = "the tokenizer's", .derived = true})
      .add(parallel::lora_settings(m.lora));
}

parallel::Settings settings(Config& c) {
  return parallel::joined({model_settings(c.model), text::text_settings(c.text)});
}

parallel::Task task(const Config& c) {
  check_model(c.model);
  auto text = text::read(c.text, c.model.context, c.model.vocab);
  ModelConfig model = c.model;
  model.vocab = text::vocabulary(model.vocab, text.tokenizer);
  parallel::Task task = text.task();
  task.build = [model](auto& tp) { return std::make_unique<Gpt>(model, tp); };
  task.description +=
      fmt::format("{} blocks, {} heads, width {}, context {}, vocabulary {}\n", model.layers,
                  model.heads, model.width, model.context, model.vocab);
  return task;
}

text::TextModel model_of(const parallel::Checkpoint& checkpoint, const text::Tokenizer& tokenizer) {
  ModelConfig m;
  restore(without(model_settings(m), {"dropout"}), checkpoint);
  m.vocab = text::vocabulary(m.vocab, tokenizer);
  for (int64_t i = 0; i < m.layers; ++i)
    text::check_stored(checkpoint, fmt::format("block{}.proj.weight", i), {m.width, m.width});
  text::check_stored(checkpoint, "positions.table", {m.context, m.width});
  text::check_stored(checkpoint, "tokens.table", {m.vocab, m.width});
  return {[m](auto& tp) { return std::make_unique<Gpt>(m, tp); }, m.context};
}

parallel::ProgramOptions program_options(Config& c, text::SampleOptions& s) {
  std::vector verbs{text::sample_verb("minigpt", s, model_of)};
  for (auto& verb : text::data_verbs("minigpt", c.data)) verbs.push_back(verb);
  for (auto& verb : hf::conversion_verbs(gpt2(c))) verbs.push_back(verb);
  return {.name = "minigpt",
          .what = "Trains a transformer on a text.",
          .settings = settings(c),
          .init = text::initial_tokenizer(c.text),
          .import =
              [](auto& path) {
                Config plain;  // flags of this run are not of what is imported
                return hf::imported(gpt2(plain), path);
              },
          .task = [&c] { return task(c); },
          .parity_defaults =
              [&c](parallel::TrainOptions& o) {
                c.model = {.layers = 4, .heads = 4, .width = 32, .context = 16, .dropout = 0.1};
                o.step.micro_batch = 2, o.step.global_batch = 16;
                o.steps = 4, o.lr.warmup = 0;
              },
          .plan_defaults = [&c](auto&) { c.text.shapes_only = true; },
          .evaluate_defaults = [&c] { c.text.val_fraction = 1; },
          .evaluate_settings = text::evaluate_settings(c.text),
          .plan_needs = {{"context", "1024"}, {"vocab", "50304", "data"}},
          .verbs = verbs};
}

}  // namespace triax::minigpt
