#include "examples/llama/hugging_face.h"

#include "core/check.h"

using namespace triax;

namespace {

using hf::Rule;

/// `rope_theta`, of older files beside the other keys, of newer ones in `rope_parameters`.
double read_rope(const hf::ModelConfig& c) {
  c.expect("rope_scaling", {"null"}, "positions are not scaled here");
  auto rope = c.object("rope_parameters");
  if (!rope) return c.real("rope_theta", 10000);
  rope->expect("rope_type", {"\"default\""}, "positions are not scaled here");
  rope->expect("partial_rotary_factor", {"1.0", "1"}, "whole heads are turned here");
  return rope->real("rope_theta", 10000);
}

void read(const hf::ModelConfig& c, LlamaConfig& m) {
  m.layers = c.size("num_hidden_layers");
  m.width = c.size("hidden_size");
  m.heads = c.size("num_attention_heads");
  m.kv_heads = c.size("num_key_value_heads", m.heads);
  m.hidden = c.size("intermediate_size");
  m.context = c.size("max_position_embeddings");
  m.vocab = c.size("vocab_size");
  m.rope_theta = read_rope(c);
  m.norm_eps = c.real("rms_norm_eps", 1e-6);
  c.expect("head_dim", {"null", std::to_string(m.width / m.heads)},
           "heads fill hidden_size evenly here");
  c.expect("hidden_act", {"\"silu\""}, "the MLP is SwiGLU here");
  c.expect("attention_bias", {"false"}, "there are no biases here");
  c.expect("mlp_bias", {"false"}, "there are no biases here");
  c.expect("attention_dropout", {"0.0", "0"}, "there is no dropout here");
  c.expect("tie_word_embeddings", {"false"}, "the head has weights of its own here");
  check_heads(m);
}

std::vector<std::pair<std::string, std::string>> config(const LlamaConfig& m) {
  return {{"num_hidden_layers", std::to_string(m.layers)},
          {"hidden_size", std::to_string(m.width)},
          {"num_attention_heads", std::to_string(m.heads)},
          {"num_key_value_heads", std::to_string(m.kv_heads)},
          {"head_dim", std::to_string(m.width / m.heads)},
          {"intermediate_size", std::to_string(m.hidden)},
          {"max_position_embeddings", std::to_string(m.context)},
          {"vocab_size", std::to_string(m.vocab)},
          {"rope_theta", parallel::toml_real(m.rope_theta)},
          {"rms_norm_eps", parallel::toml_real(m.norm_eps)},
          {"hidden_act", "\"silu\""},
          {"attention_bias", "false"},
          {"mlp_bias", "false"},
          {"bos_token_id", "null"},  // the tokenizer's files know them
          {"eos_token_id", "null"},
          {"tie_word_embeddings", "false"}};
}

/// Joint projections: features [key-value head][its queries, key, value][head_dim], and gate and up
/// in turn. Rotary turns halves of a head in both.
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
  auto same = [&](const char* here, const char* there, const Shape& shape) {
    return Rule{ours + here, shape, {{theirs + there, shape}}};
  };
  std::string attention = theirs + "self_attn.", mlp = theirs + "mlp.";
  return {same("norm1.gamma", "input_layernorm.weight", {w}),
          {ours + "qkv.weight",
           {(m.heads + 2 * m.kv_heads) * d, w},
           {{attention + "q_proj.weight", {m.heads * d, w}, heads(0, group)},
            {attention + "k_proj.weight", {m.kv_heads * d, w}, heads(group, 1)},
            {attention + "v_proj.weight", {m.kv_heads * d, w}, heads(group + 1, 1)}}},
          same("out.weight", "self_attn.o_proj.weight", {w, w}),
          same("norm2.gamma", "post_attention_layernorm.weight", {w}),
          {ours + "gate_up.weight",
           {2 * m.hidden, w},
           {{mlp + "gate_proj.weight", {m.hidden, w}, turn(0)},
            {mlp + "up_proj.weight", {m.hidden, w}, turn(1)}}},
          same("down.weight", "mlp.down_proj.weight", {w, m.hidden})};
}

std::vector<Rule> rules(const LlamaConfig& m) {
  Shape table{m.vocab, m.width}, row{m.width};
  std::vector<Rule> all = {{"tokens.table", table, {{"model.embed_tokens.weight", table}}}};
  for (int64_t i = 0; i < m.layers; ++i)
    for (Rule& rule : block(m, i)) all.push_back(std::move(rule));
  all.push_back({"norm.gamma", row, {{"model.norm.weight", row}}});
  all.push_back({"head.table", table, {{"lm_head.weight", table}}});
  return all;
}

}  // namespace

hf::Architecture llama_of_hugging_face(LlamaConfig& c, const parallel::Settings& settings) {
  return {.program = "llama",
          .name = "LlamaForCausalLM",
          .type = "llama",
          .prefix = "",
          .settings = settings,
          .table = "tokens.table",
          .read = [&c](const hf::ModelConfig& json) { read(json, c); },
          .config = [&c] { return config(c); },
          .rules = [&c] { return rules(c); },
          .ignored = {".rotary_emb.inv_freq"}};
}
