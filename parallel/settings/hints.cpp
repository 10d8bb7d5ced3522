#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "parallel/settings/setting.h"

namespace triax::parallel {

namespace {

// Options that have other names in nanoGPT, Hugging Face, Megatron-LM, DeepSpeed and vLLM. A hint
// is given only if the name exists in the program.
struct Synonyms {
  std::string_view name, typed, note = "";
};
constexpr Synonyms synonyms[] = {
    {"micro-batch", "batch batch-size", " (per replica)"},
    {"micro-batch",
     "bs micro-batch-size per-device-train-batch-size train-micro-batch-size-per-gpu"},
    {"global-batch", "batch batch-size global-batch-size train-batch-size"},
    {"global-batch", "gradient-accumulation-steps"},
    {"lr", "learning-rate"},
    {"min-lr", "min-learning-rate"},
    {"warmup", "warmup-steps warmup-iters lr-warmup-iters"},
    {"weight-decay", "wd"},
    {"average", "ema ema-decay model-ema model-ema-decay"},
    {"groups", "param-groups parameter-groups"},
    {"beta1", "adam-beta1"},
    {"beta2", "adam-beta2"},
    {"clip", "grad-clip clip-grad max-grad-norm gradient-clipping"},
    {"steps", "max-steps max-iters train-iters iters iterations epochs num-epochs"},
    {"layers", "num-layers n-layers n-layer depth"},
    {"heads", "num-heads n-heads n-head num-attention-heads"},
    {"width", "d-model hidden-size embedding-size n-embd embed-dim dim"},
    {"context", "context-length seq-len seq-length sequence-length block-size"},
    {"vocab", "vocab-size"},
    {"data", "dataset data-path data-dir"},
    {"out", "out-dir output output-dir save"},
    {"resume", "load resume-from resume-from-checkpoint"},
    {"init", "init-from from-pretrained pretrained model-name-or-path"},
    {"save-every", "save-interval save-steps"},
    {"val-every", "eval-every eval-interval eval-steps"},
    {"precision", "dtype bf16 fp16 fp32 mixed-precision"},
    {"dp", "data-parallel data-parallel-size"},
    {"pp", "pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size"},
    {"tp", "tensor-parallel tensor-parallel-size tensor-model-parallel-size"},
    {"zero", "zero-stage"},
    {"recompute", "activation-checkpointing gradient-checkpointing recompute-granularity"},
    {"comm", "backend distributed-backend"},
    {"ranks", "world-size nproc nproc-per-node num-gpus ngpus gpus n-gpus"},
    {"graph", "cuda-graph cuda-graphs"},
    {"deepspeed", "deepspeed-config ds-config"},
    {"lr-schedule", "lr-decay-style lr-scheduler lr-scheduler-type decay-lr"},
    {"eps", "adam-eps adam-epsilon epsilon"},
    {"tokens", "max-tokens max-new-tokens"},
    {"prompt", "start"},
    {"samples", "num-samples num-return-sequences"},
    {"temperature", "temp"},
    {"checkpoint", "ckpt ckpt-path model model-path out-dir"},
    {"from", "model model-name-or-path pretrained"},
    {"tokenizer", "tokenize"},
    {"data", "prepare tokenize preprocess"},
    {"sample", "generate inference infer"},
    {"train", "pretrain fit finetune"},
};

// Verbs and flags of earlier versions that are scripts now.
constexpr Synonyms scripts[] = {{"triax-report RUN..", "report"},
                                {"triax-overlay RUN", "overlay"},
                                {"triax-compare-checkpoints A B", "diff"}};

bool holds_word(std::string_view words, std::string_view word) {
  return fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

// Returns the distance of Levenshtein (1966), row by row.
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

// Returns a name as it is written here: --Micro_Batch is micro-batch.
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
    size_t least = std::max(word.size(), name.size()) - std::min(word.size(), name.size());
    if (least > limit) continue;
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
  for (const Synonyms& s : scripts)
    if (s.typed == word) return fmt::format("; it is `{}` now", s.name);
  std::vector<std::string> meant;
  for (const Synonyms& s : synonyms)
    if (holds_word(s.typed, word) && std::find(names.begin(), names.end(), s.name) != names.end())
      meant.push_back(fmt::format("{}{}", written(s.name), s.note));
  if (!meant.empty()) return fmt::format("; use {}", join(meant, " or "));
  std::string near = nearest(word, names);
  return near.empty() ? "" : "; the nearest is " + written(near);
}

}  // namespace triax::parallel
