#pragma once
#include "examples/llama/llama.h"
#include "examples/text/sample.h"
#include "examples/text/text_data.h"

/// Returns the flags of rotary positions.
inline triax::parallel::Settings rope_settings(decltype(LlamaConfig::rope)& rope) {
  triax::parallel::SettingGroup group("Model");
  return group.add("rope-theta", "X", "base of the rotary angles", &rope.base, {.range = {1}})
      .add("rope-factor", "X", "rotary frequencies are divided by it, to extend the context",
           &rope.scale, {.range = {1}})
      .add("rope-original-context", "N",
           "context that is extended by dividing low frequencies alone, as in Llama 3.1; 0: all",
           &rope.original_context, {.range = {0, 1 << 24}})
      .add("rope-low-turns", "X",
           "low_freq_factor of Llama 3's rope scaling: slower frequencies are divided by "
           "rope-factor",
           &rope.low_turns, {.range = {0}})
      .add("rope-high-turns", "X", "high_freq_factor: faster frequencies stay", &rope.high_turns,
           {.range = {0}});
}

/// Returns the flags of a Llama.
inline triax::parallel::Settings settings(LlamaConfig& c) {
  triax::parallel::SettingGroup group("Model");
  triax::parallel::SettingTraits size{.range = {1, 1 << 24}};
  return group
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
      .add(rope_settings(c.rope))
      .add("tie-embeddings", "", "the head is the token table", &c.tied)
      .add("norm-eps", "X", "epsilon of RMS norms", &c.norm_eps, {.range = {1e-12, 1}})
      .add("vocab|vocab-size", "N", "rows of the embedding table", &c.vocab,
           {.range = {0, size.range.max}, .shown = "the tokenizer's", .derived = true});
}

/// Returns how to build a Llama. Throws Error 78 for heads that do not fit.
inline triax::parallel::Build build_of(LlamaConfig c, const triax::text::Tokenizer& tokenizer) {
  check_heads(c);
  c.vocab = triax::text::vocabulary(c.vocab, tokenizer);
  return [c](auto& tp) { return std::make_unique<Llama>(c, tp); };
}

/// Returns the Llama that a run has saved. Throws Error 65.
inline triax::text::TextModel llama_of(const triax::parallel::Checkpoint& checkpoint,
                                       const triax::text::Tokenizer& tokenizer) {
  const std::string sign = "block0.gate_up.weight";
  triax::check_input(checkpoint.tensors().contains(sign), triax::Exit::data,
                     "checkpoint {}: it has no tensor {}; expected a checkpoint of llama",
                     checkpoint.path(), sign);
  LlamaConfig c;
  restore(settings(c), checkpoint);
  for (int64_t i = 0; i < c.layers; ++i)
    triax::text::check_stored(checkpoint, fmt::format("block{}.gate_up.weight", i),
                              {2 * c.hidden, c.width});
  auto rows = triax::text::vocabulary(c.vocab, tokenizer);
  triax::text::check_stored(checkpoint, "tokens.table", {rows, c.width});
  return {build_of(c, tokenizer), c.context};
}
