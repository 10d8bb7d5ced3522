#include "examples/hugging_face/conversion.h"

#include "triax/parallel/comm/process.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::hf {

namespace {

using parallel::SettingGroup;
parallel::SettingTraits must() { return {.shown = "none, must be given"}; }

parallel::Settings import_settings(const Architecture& a, ImportOptions& o) {
  return SettingGroup("Import")
      .add("from|model|model-name-or-path|pretrained", "DIR",
           a.open_file
               ? "model directory of Hugging Face (config.json and model.safetensors), or a file "
                 "gpt2_*.bin of llm.c"
               : "model directory of Hugging Face: config.json and model.safetensors",
           &o.from, must())
      .add("out", "DIR", "new run directory, for train --init DIR", &o.out, must())
      .add("context", "N", "the first N positions of the model alone", &o.context,
           {.range = {0, 1 << 30}, .shown = "all"});
}

parallel::Settings export_settings(ExportOptions& o) {
  return SettingGroup("Export")
      .add("checkpoint|ckpt|ckpt-path|model|model-path|out-dir", "DIR",
           "checkpoint RUN/step-N, or a run directory, whose newest is taken", &o.checkpoint,
           must())
      .add("to", "DIR|FILE.gguf",
           "new model directory, config.json and model.safetensors; or a file for llama.cpp", &o.to,
           must())
      .add("dtype|torch-dtype", "fp32|bf16|fp16", "of the weights that are written",
           parallel::choice(o.dtype, {{"fp32", f32}, {"bf16", bf16}, {"fp16", f16}}))
      .add("max-shard-gb|max-shard-size", "X",
           "gigabytes of a file of weights at most; a larger model has several, and an index",
           &o.shard_gb, {.range = {1e-6, 1e6}})
      .add("peft", "", "write the adapters of a run with --lora alone, as PEFT's files", &o.peft)
      .add("tokenizer", "DIR",
           "model directory whose tokenizer, chat template and generation_config.json go along",
           &o.tokenizer, {.shown = "those of the run, or of the weights that it began with"})
      .add(parallel::weights_setting("Export", o.weights));
}

}  // namespace

std::vector<parallel::Verb> conversion_verbs(const Architecture& a) {
  auto from = std::make_shared<ImportOptions>();
  auto to = std::make_shared<ExportOptions>();
  auto alone = [](const char* verb) {
    parallel::check_not_launched(std::string(verb) + " runs in one process");
  };
  return {{.name = "import",
           .what = "Makes a checkpoint of the weights of a Hugging Face " + a.name + ".",
           .settings = import_settings(a, *from),
           .examples = {a.program + " import --from gpt2 --out runs/pretrained"},
           .run =
               [a, from, alone](auto&) {
                 alone("import");
                 fmt::print("{}", import_model(a, *from));
                 return 0;
               }},
          {.name = "export",
           .what = "Writes a checkpoint as a Hugging Face " + a.name + ", or for llama.cpp.",
           .settings = export_settings(*to),
           .examples = {a.program + " export --checkpoint runs/mine --to mine-hf",
                        a.program + " export --checkpoint runs/mine --to mine.gguf --dtype bf16"},
           .run = [a, to, alone](auto&) { return alone("export"), export_model(a, *to), 0; }}};
}

}  // namespace triax::hf
