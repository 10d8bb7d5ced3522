#include "parallel/settings/hints.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace triax::parallel {

namespace {

// What people type who know other programs (nanoGPT, Hugging Face, Megatron-LM, DeepSpeed, vLLM),
// and the name that may stand for it here. A hint is given only if that name exists.
struct Synonym {
  std::string_view typed, name, note = "";
};
constexpr Synonym synonyms[] = {
    {"batch-size", "micro-batch", " (per replica)"},
    {"batch-size", "global-batch"},
    {"batch", "micro-batch", " (per replica)"},
    {"batch", "global-batch"},
    {"per-device-train-batch-size", "micro-batch"},
    {"micro-batch-size", "micro-batch"},
    {"train-micro-batch-size-per-gpu", "micro-batch"},
    {"global-batch-size", "global-batch"},
    {"train-batch-size", "global-batch"},
    {"gradient-accumulation-steps", "global-batch"},
    {"learning-rate", "lr"},
    {"min-learning-rate", "min-lr"},
    {"warmup-steps", "warmup"},
    {"warmup-iters", "warmup"},
    {"lr-warmup-iters", "warmup"},
    {"wd", "weight-decay"},
    {"adam-beta1", "beta1"},
    {"adam-beta2", "beta2"},
    {"grad-clip", "clip"},
    {"clip-grad", "clip"},
    {"max-grad-norm", "clip"},
    {"max-steps", "steps"},
    {"max-iters", "steps"},
    {"train-iters", "steps"},
    {"iters", "steps"},
    {"epochs", "steps"},
    {"num-epochs", "steps"},
    {"num-layers", "layers"},
    {"n-layer", "layers"},
    {"n-layers", "layers"},
    {"num-attention-heads", "heads"},
    {"num-heads", "heads"},
    {"n-head", "heads"},
    {"n-heads", "heads"},
    {"hidden-size", "width"},
    {"embedding-size", "width"},
    {"d-model", "width"},
    {"n-embd", "width"},
    {"dim", "width"},
    {"block-size", "context"},
    {"seq-len", "context"},
    {"seq-length", "context"},
    {"sequence-length", "context"},
    {"context-length", "context"},
    {"max-position-embeddings", "context"},
    {"vocab-size", "vocab"},
    {"dataset", "data"},
    {"data-path", "data"},
    {"data-dir", "data"},
    {"out-dir", "out"},
    {"output", "out"},
    {"output-dir", "out"},
    {"save", "out"},
    {"load", "resume"},
    {"resume-from-checkpoint", "resume"},
    {"save-interval", "save-every"},
    {"save-steps", "save-every"},
    {"eval-every", "val-every"},
    {"eval-interval", "val-every"},
    {"eval-steps", "val-every"},
    {"dtype", "precision"},
    {"bf16", "precision", " bf16"},
    {"fp16", "precision", " fp16"},
    {"data-parallel-size", "dp"},
    {"pipeline-parallel-size", "pp"},
    {"pipeline-model-parallel-size", "pp"},
    {"tensor-parallel-size", "tp"},
    {"tensor-model-parallel-size", "tp"},
    {"zero-stage", "zero"},
    {"activation-checkpointing", "recompute"},
    {"gradient-checkpointing", "recompute"},
    {"recompute-granularity", "recompute"},
    {"backend", "comm"},
    {"distributed-backend", "comm"},
    {"world-size", "ranks"},
    {"nproc", "ranks"},
    {"nproc-per-node", "ranks"},
    {"num-gpus", "ranks"},
    {"ngpus", "ranks"},
    {"gpus-per-node", "node"},
    {"cuda-graph", "graph"},
    {"max-new-tokens", "tokens"},
    {"max-tokens", "tokens"},
    {"temp", "temperature"},
    {"ckpt", "checkpoint"},
    {"model", "checkpoint"},
    {"generate", "sample"},
    {"inference", "sample"},
    {"infer", "sample"},
    {"pretrain", "train"},
    {"fit", "train"},
    {"estimate", "plan"},
};

// The distance of Levenshtein (1966), row by row.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Names are compared as they are written here: --Micro_Batch is micro-batch.
std::string normal(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string name(word);
  for (char& c : name) c = c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

std::string nearest(std::string_view typed, std::span<const std::string> names) {
  std::string word = normal(typed);
  size_t limit = word.size() < 4 ? 1 : std::max<size_t>(2, word.size() / 3);
  std::string best;
  for (const std::string& name : names) {
    size_t distance = edit_distance(word, name);
    if (distance <= limit && distance < name.size()) limit = distance - (distance > 0), best = name;
  }
  if (!best.empty() || word.size() < 3) return best;
  auto longer = [&](const std::string& name) { return name.starts_with(word); };
  auto found = std::find_if(names.begin(), names.end(), longer);
  return found == names.end() ? "" : *found;
}

std::string hint(std::string_view typed, std::span<const std::string> names, const char* around) {
  auto written = [&](std::string_view name) { return fmt::format(fmt::runtime(around), name); };
  std::string word = normal(typed);
  std::vector<std::string> meant;
  for (const Synonym& s : synonyms)
    if (s.typed == word && std::find(names.begin(), names.end(), s.name) != names.end())
      meant.push_back(fmt::format("{}{}", written(s.name), s.note));
  if (!meant.empty()) return fmt::format("; use {}", fmt::join(meant, " or "));
  std::string near = nearest(word, names);
  return near.empty() ? "" : "; the nearest is " + written(near);
}

}  // namespace triax::parallel
