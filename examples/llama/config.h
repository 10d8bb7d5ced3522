#pragma once
#include "examples/llama/llama.h"
#include "examples/text/sample.h"
#include "examples/text/text_data.h"
#include "triax/parallel/train/options/groups.h"

/// Returns the flags of attention.
inline triax::parallel::Settings attention_settings(LlamaConfig& c) {
  using QkNorm = LlamaConfig::QkNorm;
  return triax::parallel::SettingGroup("Model")
      .add("head-dim|kv-channels", "N", "features of a head; 0: width / heads", &c.head_dim,
           {.range = {0, 1 << 24}})
      .add("qkv-bias|add-qkv-bias", "", "biases of queries, keys and values", &c.qkv_bias)
      .add("qk-norm|qk-layernorm", "off|head|all",
           "RMS norm of queries and keys: of each head (Qwen3), or of all heads together (OLMoE)",
           triax::parallel::choice(
               c.qk_norm, {{"off", QkNorm::off}, {"head", QkNorm::head}, {"all", QkNorm::all}}))
      .add("window|sliding-window", "N", "keys that a query sees, the last ones; 0: all", &c.window,
           {.range = {0, 1 << 24}})
      .add("norms-after", "", "norms of what attention and the MLP give, as in OLMo 2, not before",
           &c.norms_after)
      .add("rope-theta", "X", "base of the rotary angles", &c.rope.base, {.range = {1}})
      .add("rope-factor", "X", "rotary frequencies are divided by it, to extend the context",
           &c.rope.scale, {.range = {1}})
      .add("rope-original-context", "N",
           "context that is extended by dividing low frequencies alone, as in Llama 3.1; 0: all",
           &c.rope.original_context, {.range = {0, 1 << 24}})
      .add("rope-low-turns", "X",
           "low_freq_factor of Llama 3's rope scaling: slower frequencies are divided by "
           "rope-factor",
           &c.rope.low_turns, {.range = {0}})
      .add("rope-high-turns", "X", "high_freq_factor: faster frequencies stay", &c.rope.high_turns,
           {.range = {0}});
}

/// Returns the flags of mixtures of experts that make up the model.
inline triax::parallel::Settings expert_settings(LlamaConfig& c) {
  using Router = triax::parallel::RouterOptions;
  triax::parallel::SettingTraits size{.range = {0, 1 << 24}};
  return triax::parallel::SettingGroup("Model")
      .add("experts|num-experts|num-local-experts|n-routed-experts", "N",
           "experts of each block, in place of one MLP; 0: none", &c.router.experts,
           {.range = {0, 65536}})
      .add("top-k|moe-router-topk|num-experts-per-tok", "N", "experts that each token goes to",
           &c.router.top_k, {.range = {1, 65536}})
      .add("expert-hidden|moe-ffn-hidden-size|moe-intermediate-size", "N",
           "features of an expert; 0: those of the MLP", &c.expert_hidden, size)
      .add("shared-experts|n-shared-experts", "N", "experts that every token goes to",
           &c.shared_experts, size)
      .add("shared-gate", "", "a sigmoid weighs what those give, as in Qwen2-MoE", &c.shared_gate)
      .add("dense-layers|first-k-dense-replace", "N",
           "blocks at the beginning that have one MLP all the same", &c.dense_layers, size)
      .add("router-score|moe-router-score-function", "softmax|sigmoid", "scores of the experts",
           choice(c.router.score,
                  {{"softmax", Router::Score::softmax}, {"sigmoid", Router::Score::sigmoid}}))
      .add("router-weights", "normalized|plain",
           "weights of a token's experts: made to add up to 1, or their scores",
           choice(c.router.weights,
                  {{"normalized", Router::Weights::normalized}, {"plain", Router::Weights::plain}}))
      .add("router-scale|routed-scaling-factor", "X", "multiplies those weights",
           &c.router.weight_scale, {.range = {1e-6, 1e6}});
}

/// Returns the flags of how mixtures of experts are trained.
inline triax::parallel::Settings balance_settings(LlamaConfig& c) {
  using Router = triax::parallel::RouterOptions;
  return triax::parallel::SettingGroup("Experts", triax::parallel::OnResume::say)
      .add("balance|moe-aux-loss-coeff|router-aux-loss-coef", "X",
           "factor of the load-balancing loss", &c.router.balance, {.range = {0}})
      .add("balance-over|moe-router-load-balancing-type", "sequence|step|micro-batch",
           "what it balances: each sequence, against the last step, or each micro-batch, where the "
           "result depends on the mesh",
           choice(c.router.over, {{"sequence", Router::Over::sequence},
                                  {"step", Router::Over::step},
                                  {"micro-batch", Router::Over::micro_batch}}))
      .add("balance-bias|moe-router-bias-update-rate", "X",
           "step of the routers' biases, which balance without a loss; 0: no biases",
           &c.router.bias_rate, {.range = {0}, .on_resume = triax::parallel::OnResume::refuse})
      .add("router-z|moe-z-loss-coeff", "X", "factor of the routers' z-loss", &c.router.z_loss,
           {.range = {0}})
      .add("capacity|moe-expert-capacity-factor|capacity-factor", "X",
           "in training an expert takes at most X times its even share of a sequence; 0: all",
           &c.router.capacity, {.range = {0}});
}

/// Returns the flags of a Llama.
inline triax::parallel::Settings settings(LlamaConfig& c) {
  triax::parallel::SettingTraits size{.range = {1, 1 << 24}};
  return triax::parallel::SettingGroup("Model")
      .add("layers|num-layers|num-hidden-layers|n-layers|n-layer|depth", "N", "transformer blocks",
           &c.layers, size)
      .add("width|d-model|hidden-size|embedding-size|n-embd|embed-dim|dim", "N",
           "embedding size (d_model)", &c.width, size)
      .add("heads|num-heads|n-heads|n-head|num-attention-heads", "N", "query heads", &c.heads, size)
      .add("kv-heads|num-key-value-heads|n-kv-heads|num-query-groups", "N", "key-value heads",
           &c.kv_heads, size)
      .add("hidden|intermediate-size|ffn-hidden-size|ffn-dim", "N", "features of the MLP",
           &c.hidden, size)
      .add("context|context-length|seq-len|seq-length|sequence-length|block-size", "N",
           "context length in tokens", &c.context,
           {
               .range = size.range,
               .on_resume = triax::parallel::OnResume::say,  // the data would differ
           })
      .add(attention_settings(c))
      .add("tie-embeddings", "", "the head is the token table", &c.tied)
      .add("norm-eps", "X", "epsilon of RMS norms", &c.norm_eps, {.range = {1e-12, 1}})
      .add("vocab|vocab-size", "N", "rows of the embedding table", &c.vocab,
           {.range = {0, size.range.max}, .shown = "the tokenizer's", .derived = true})
      .add(expert_settings(c))
      .add(balance_settings(c))
      .add(triax::parallel::lora_settings(c.lora));
}

/// Throws Error 78 for settings of experts that would not be heeded, as no block has any.
inline void check_experts(LlamaConfig c) {
  LlamaConfig plain;
  auto given = triax::parallel::joined({expert_settings(c), balance_settings(c)});
  auto none = triax::parallel::joined({expert_settings(plain), balance_settings(plain)});
  for (size_t i = 0; i < given.size(); ++i)
    triax::check_input(c.router.experts > 0 || literal(given[i]) == literal(none[i]),
                       triax::Exit::config, "{}={} without experts\n  Add --experts N.",
                       given[i].name, literal(given[i]));
  triax::check_input(c.router.experts == 0 || !c.norms_after, triax::Exit::config,
                     "norms-after with experts\n  Blocks of experts have their norms before.");
  triax::check_input(c.router.experts == 0 || c.dense_layers < c.layers, triax::Exit::config,
                     "dense-layers={} of {} layers\n  Expected fewer: the others have experts.",
                     c.dense_layers, c.layers);
}

/// Returns how to build a Llama. Throws Error 78 for settings that do not fit.
inline triax::parallel::Build build_of(LlamaConfig c, const triax::text::Tokenizer& tokenizer) {
  check_heads(c), check_experts(c);
  c.vocab = triax::text::vocabulary(c.vocab, tokenizer);
  return [c](auto& tp) { return std::make_unique<Llama>(c, tp); };
}

/// Returns the Llama that a run has saved. Throws Error 65.
inline triax::text::TextModel llama_of(const triax::parallel::Checkpoint& checkpoint,
                                       const triax::text::Tokenizer& tokenizer) {
  const std::string sign = "block0.gate_up.weight";
  triax::check_input(checkpoint.tensors().contains(sign) ||
                         checkpoint.tensors().contains("block0.experts.gate_up"),
                     triax::Exit::data,
                     "checkpoint {}: it has no tensor {}; expected a checkpoint of triax-llama",
                     checkpoint.path(), sign);
  LlamaConfig c;
  restore(settings(c), checkpoint);
  for (int64_t i = 0; i < c.layers; ++i)
    if (has_experts(c, i))
      triax::text::check_stored(checkpoint, fmt::format("block{}.experts.gate_up", i),
                                {c.router.experts, 2 * hidden_of_expert(c), c.width});
    else
      triax::text::check_stored(checkpoint, fmt::format("block{}.gate_up.weight", i),
                                {2 * c.hidden, c.width});
  auto rows = triax::text::vocabulary(c.vocab, tokenizer);
  triax::text::check_stored(checkpoint, "tokens.table", {rows, c.width});
  return {build_of(c, tokenizer), c.context};
}
