#include "examples/llama/hugging_face.h"

#include "core/check.h"

using namespace triax;

namespace {

using hf::Rule;
using hf::same;

/// Reads `rope_theta` and `rope_scaling` of older files; newer ones have all in `rope_parameters`.
nn::RotaryOptions read_rope(const hf::ModelConfig& c) {
  auto newer = c.object("rope_parameters"), scaling = newer ? newer : c.object("rope_scaling");
  nn::RotaryOptions rope{.base = c.real("rope_theta", 10000)};
  if (newer) rope.base = newer->real("rope_theta", rope.base);
  c.expect("partial_rotary_factor", {"null", "1.0", "1"}, "whole heads are turned here");
  if (!scaling) return rope;
  const char* key = scaling->has("type") ? "type" : "rope_type";
  scaling->expect(key, {"\"default\"", "\"linear\"", "\"llama3\""},
                  "positions are scaled no other way here");
  scaling->expect("partial_rotary_factor", {"1.0", "1"}, "whole heads are turned here");
  std::string kind = scaling->text(key);
  if (kind != "default") rope.scale = scaling->real("factor");
  if (kind != "llama3") return rope;
  rope.original_context = scaling->size("original_max_position_embeddings");
  rope.low_turns = scaling->real("low_freq_factor");
  rope.high_turns = scaling->real("high_freq_factor");
  return rope;
}

void read(const hf::ModelConfig& c, LlamaConfig& m) {
  m.kv_heads = c.size("num_key_value_heads", m.heads);
  m.rope = read_rope(c);
  m.norm_eps = c.real("rms_norm_eps", 1e-6);
  m.tied = c.flag("tie_word_embeddings", false);
  check_heads(m);
  c.expect("head_dim", {"null", std::to_string(m.width / m.heads)},
           "heads fill hidden_size evenly here");
}

hf::Keys config(const LlamaConfig& m) {
  auto real = parallel::toml_real;
  const nn::RotaryOptions& r = m.rope;
  std::string scaling = "null";
  if (r.original_context > 0)
    scaling = fmt::format(
        R"({{"rope_type": "llama3", "factor": {}, "original_max_position_embeddings": {}, )"
        R"("low_freq_factor": {}, "high_freq_factor": {}}})",
        real(r.scale), r.original_context, real(r.low_turns), real(r.high_turns));
  else if (r.scale != 1)
    scaling = fmt::format(R"({{"rope_type": "linear", "factor": {}}})", real(r.scale));
  return {{"num_key_value_heads", std::to_string(m.kv_heads)},
          {"head_dim", std::to_string(m.width / m.heads)},
          {"rope_theta", real(r.base)},
          {"rope_scaling", scaling},
          {"rms_norm_eps", real(m.norm_eps)},
          {"tie_word_embeddings", m.tied ? "true" : "false"}};
}

/// Returns the rules of a block. Projections are joint: features [key-value head][its queries, key,
/// value][head_dim], and gate and up in turn. Rotary turns halves of a head in both.
std::vector<Rule> block(const LlamaConfig& m, int64_t layer) {
  std::string ours = fmt::format("block{}.", layer),
              theirs = fmt::format("model.layers.{}.", layer);
  const int64_t w = m.width, d = w / m.heads, group = m.heads / m.kv_heads;
  auto heads = [=](int64_t first, int64_t count) {
    return [=, kv = m.kv_heads](const Tensor& x) {
      return x.view({kv, group + 2, d, w}).narrow(1, first, count);
    };
  };
  auto turn = [=, hidden = m.hidden](int64_t which) {
    return [=](const Tensor& x) { return x.view({hidden, 2, w}).narrow(1, which, 1); };
  };
  std::string attention = theirs + "self_attn.", mlp = theirs + "mlp.";
  return {same(ours + "norm1.gamma", theirs + "input_layernorm.weight", {w}),
          {ours + "qkv.weight",
           {(m.heads + 2 * m.kv_heads) * d, w},
           {{attention + "q_proj.weight", {m.heads * d, w}, heads(0, group)},
            {attention + "k_proj.weight", {m.kv_heads * d, w}, heads(group, 1)},
            {attention + "v_proj.weight", {m.kv_heads * d, w}, heads(group + 1, 1)}}},
          same(ours + "out.weight", theirs + "self_attn.o_proj.weight", {w, w}),
          same(ours + "norm2.gamma", theirs + "post_attention_layernorm.weight", {w}),
          {ours + "gate_up.weight",
           {2 * m.hidden, w},
           {{mlp + "gate_proj.weight", {m.hidden, w}, turn(0)},
            {mlp + "up_proj.weight", {m.hidden, w}, turn(1)}}},
          same(ours + "down.weight", theirs + "mlp.down_proj.weight", {w, m.hidden})};
}

std::vector<Rule> rules(const LlamaConfig& m) {
  check_heads(m);
  const Shape table{m.vocab, m.width};
  std::vector<Rule> all{same("tokens.table", "model.embed_tokens.weight", table)};
  for (int64_t i = 0; i < m.layers; ++i)
    for (Rule& rule : block(m, i)) all.push_back(std::move(rule));
  all.push_back(same("norm.gamma", "model.norm.weight", {m.width}));
  if (m.tied) all[0].copy = "lm_head.weight";
  else all.push_back(same("head.table", "lm_head.weight", table));
  return all;
}

}  // namespace

hf::Architecture llama_of_hugging_face(LlamaConfig& c, const parallel::Settings& settings) {
  return {.program = "llama",
          .name = "LlamaForCausalLM",
          .type = "llama",
          .prefix = "",
          .settings = settings,
          .base = "model.",
          .table = "tokens.table",
          .context = &c.context,
          .positions = "",
          .sizes = {{"num_hidden_layers", &c.layers},
                    {"hidden_size", &c.width},
                    {"num_attention_heads", &c.heads},
                    {"intermediate_size", &c.hidden},
                    {"max_position_embeddings", &c.context},
                    {"vocab_size", &c.vocab}},
          .fixed = {{"hidden_act", {"\"silu\""}, "the MLP is SwiGLU here"},
                    {"attention_bias", {"false"}, "there are no biases here"},
                    {"mlp_bias", {"false"}, "there are no biases here"},
                    {"attention_dropout", {"0.0", "0"}, "there is no dropout here"}},
          .read = [&c](const hf::ModelConfig& json) { read(json, c); },
          .config = [&c] { return config(c); },
          .rules = [&c] { return rules(c); },
          .ignored = {".rotary_emb.inv_freq"}};
}
