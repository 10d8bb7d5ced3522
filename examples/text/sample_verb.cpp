#include "examples/text/sample.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::text {
namespace {

using parallel::huge;
using parallel::SettingGroup;

parallel::Settings sampling_settings(SampleOptions& o) {
  return SettingGroup("Sampling")
      .add("checkpoint|ckpt|ckpt-path|model|model-path|out-dir", "DIR",
           "checkpoint RUN/step-N, or a run directory, whose newest is taken", &o.checkpoint,
           {.shown = "none, must be given"})
      .add(parallel::weights_setting("Sampling", o.weights))
      .add("prompt|start", "TEXT", "text to continue; `-`: standard input", &o.prompt,
           {.shown = "a line break"})
      .add("interactive", "", "continue each line that is typed; Ctrl-C ends an answer, Ctrl-D all",
           &o.interactive)
      .add("tokens|max-tokens|max-new-tokens", "N", "tokens to generate", &o.tokens,
           {.range = {0, huge}})
      .add("samples|num-samples|num-return-sequences", "N",
           "texts to generate, each from the prompt", &o.samples, {.range = {1, huge}})
      .add("slide", "N",
           "how many of the oldest tokens to drop at once when the context is full; 0: half of "
           "them; 1: keeps the most context, but recomputes all of it for every token",
           &o.slide, {.range = {0, huge}})
      .add("temperature|temp", "X", "divides the logits; 0: always the most likely token",
           &o.sampling.temperature)
      .add("top-k", "N", "sample among the N most likely tokens; 0: among all", &o.sampling.top_k,
           {.range = {0, huge}})
      .add("top-p", "X",
           "sample among the fewest tokens whose probabilities, after --top-k, add up to X",
           &o.sampling.top_p, {.range = {.min = 0, .max = 1, .open_min = true}})
      .add("seed", "N", "random seed of the choices", &o.seed);
}

parallel::Settings run_settings(SampleOptions& o) {
  using Precision = std::optional<DType>;
  SettingGroup run("Run"), mesh("Mesh");
  run.add("config", "FILE", "TOML file whose keys are these flags; flags win over it", &o.config,
          {.shown = "none", .key = false})
      .add(
          "precision", "saved|fp32|bf16|fp16",
          "of weights and activations; saved: the checkpoint's",
          parallel::choice(o.precision,
                           {{"saved", Precision()}, {"fp32", f32}, {"bf16", bf16}, {"fp16", f16}}));
  mesh.add("pp", "N", "pipeline stages", &o.pp, {.range = {1, huge}})
      .add("tp", "N", "tensor-parallel ranks that split each layer", &o.tp, {.range = {1, huge}});
  return parallel::joined(
      {run, mesh, without(launch_settings(o.launch), {"nondeterministic", "device-map"})});
}

}  // namespace

parallel::Verb sample_verb(const std::string& program, SampleOptions& o, TextModelOf model_of) {
  std::string call = program + " sample --checkpoint runs/mine ";
  auto run = [&o, model_of = std::move(model_of)](const parallel::Invocation& words) {
    parallel::on_ranks(o.launch, words.argc, words.argv,
                       [&](parallel::World& world) { sample(o, model_of, world); });
    return 0;
  };
  return {.name = "sample",
          .what = "Continues a text with a trained model.",
          .settings = parallel::joined({sampling_settings(o), run_settings(o)}),
          .examples = {call + "--prompt \"Once \" --tokens 100", call + "--interactive --top-p 0.9",
                       "cat story.txt | " + call + "--prompt -"},
          .run = run,
          .elsewhere = "generate|inference|infer"};
}

}  // namespace triax::text
