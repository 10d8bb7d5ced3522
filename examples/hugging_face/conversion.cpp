#include "examples/hugging_face/conversion.h"

#include "triax/parallel/comm/process.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::hf {

std::vector<parallel::Verb> conversion_verbs(const Architecture& a) {
  auto from = std::make_shared<ImportOptions>();
  auto to = std::make_shared<ExportOptions>();
  parallel::SettingGroup in("Import"), out("Export");
  parallel::SettingTraits must{.shown = "none, must be given"};
  in.add("from|model|model-name-or-path|pretrained", "DIR",
         a.open_file
             ? "model directory of Hugging Face (config.json and model.safetensors), or a file "
               "gpt2_*.bin of llm.c"
             : "model directory of Hugging Face: config.json and model.safetensors",
         &from->from, {.shown = must.shown})
      .add("out", "DIR", "new run directory, for train --init DIR", &from->out, must)
      .add("context", "N", "the first N positions of the model alone", &from->context,
           {.range = {0, 1 << 30}, .shown = "all"});
  out.add("checkpoint|ckpt|ckpt-path|model|model-path|out-dir", "DIR",
          "checkpoint RUN/step-N, or a run directory, whose newest is taken", &to->checkpoint,
          {.shown = must.shown})
      .add("to", "DIR|FILE.gguf",
           "new model directory, config.json and model.safetensors; or a file for llama.cpp",
           &to->to, must)
      .add("dtype|torch-dtype", "fp32|bf16|fp16", "of the weights that are written",
           parallel::choice(to->dtype, {{"fp32", f32}, {"bf16", bf16}, {"fp16", f16}}))
      .add("max-shard-gb|max-shard-size", "X",
           "gigabytes of a file of weights at most; a larger model has several, and an index",
           &to->shard_gb, {.range = {1e-6, 1e6}})
      .add("peft", "", "write the adapters of a run with --lora alone, as PEFT's files", &to->peft)
      .add("tokenizer", "DIR",
           "model directory whose tokenizer, chat template and generation_config.json go along",
           &to->tokenizer, {.shown = "those of the run, or of the weights that it began with"})
      .add(parallel::weights_setting("Export", to->weights));
  auto alone = [](const char* verb) {
    parallel::check_not_launched(std::string(verb) + " runs in one process");
  };
  return {{.name = "import",
           .what = "Makes a checkpoint of the weights of a Hugging Face " + a.name + ".",
           .settings = in,
           .examples = {a.program + " import --from gpt2 --out runs/pretrained"},
           .run = [a, from, alone](auto&) { return alone("import"), import_model(a, *from), 0; }},
          {.name = "export",
           .what = "Writes a checkpoint as a Hugging Face " + a.name + ".",
           .settings = out,
           .examples = {a.program + " export --checkpoint runs/mine --to mine-hf"},
           .run = [a, to, alone](auto&) { return alone("export"), export_model(a, *to), 0; }}};
}

}  // namespace triax::hf
