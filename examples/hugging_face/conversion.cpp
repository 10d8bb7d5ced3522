#include "examples/hugging_face/conversion.h"

#include <algorithm>

#include "examples/hugging_face/tokenizer_files.h"
#include "parallel/comm/process.h"

namespace triax::hf {

Tensor permuted(const Tensor& x, const std::vector<int>& order) {
  Shape sizes = x.shape(), strides = x.strides();
  for (size_t i = 0; i < order.size(); ++i) {
    sizes[int(i)] = x.shape()[order[i]];
    strides[int(i)] = x.strides()[order[i]];
  }
  return Tensor(x.storage(), x.dtype(), sizes, strides, x.offset());
}

std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to,
                                              const Files& files) {
  constexpr uint64_t largest = uint64_t(256) << 20;
  constexpr const char* known[] = {"vocab.json",
                                   "merges.txt",
                                   "tokenizer.json",
                                   "tokenizer.model",
                                   "added_tokens.json",
                                   "chat_template.jinja",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "generation_config.json"};
  std::vector<std::string> copied;
  for (const std::string& name : files.list(from)) {
    if (std::ranges::count(known, name) == 0) continue;
    if (copied.empty()) files.make_directory(to);
    files.write(to + "/" + name, files.read(from + "/" + name, largest));
    copied.push_back(name);
  }
  if (!copied.empty()) files.sync_directory(to);
  return copied;
}

std::vector<parallel::OwnVerb> conversion_verbs(const Architecture& a) {
  auto from = std::make_shared<ImportOptions>();
  auto to = std::make_shared<ExportOptions>();
  parallel::SettingGroup in("Import"), out("Export");
  parallel::SettingTraits must{.shown = "none, must be given"};
  in.add("from", "DIR",
         a.open_file
             ? "model directory of Hugging Face (config.json and model.safetensors), or a file "
               "gpt2_*.bin of llm.c"
             : "model directory of Hugging Face: config.json and model.safetensors",
         &from->from, must)
      .add("out", "DIR", "new run directory, for train --init DIR", &from->out, must);
  out.add("checkpoint", "DIR", "checkpoint RUN/step-N, or a run directory, whose newest is taken",
          &to->checkpoint, must)
      .add("to", "DIR", "new model directory: config.json and model.safetensors, in fp32", &to->to,
           must);
  auto alone = [](const char* verb) {
    parallel::check_not_launched(std::string(verb) + " runs in one process");
  };
  return {{{"import",
            "Makes a checkpoint of the weights of a Hugging Face " + a.name + ".",
            in,
            {a.program + " import --from gpt2 --out runs/pretrained"}},
           [a, from, alone](int, char**) { return alone("import"), import_model(a, *from), 0; }},
          {{"export",
            "Writes a checkpoint as a Hugging Face " + a.name + ".",
            out,
            {a.program + " export --checkpoint runs/mine --to mine-hf"}},
           [a, to, alone](int, char**) { return alone("export"), export_model(a, *to), 0; }}};
}

}  // namespace triax::hf
