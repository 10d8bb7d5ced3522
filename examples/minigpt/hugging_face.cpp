#include "examples/minigpt/config.h"
#include "triax/core/check.h"

namespace triax::minigpt {
namespace {

using hf::Rule;
using hf::same;

void read(const hf::ModelConfig& c, ModelConfig& m) {
  double p = c.real("resid_pdrop", 0.1), e = c.real("embd_pdrop", 0.1),
         a = c.real("attn_pdrop", 0.1);
  check_input(p == e && p == a, Exit::data,
              "{}: resid_pdrop {}, embd_pdrop {}, attn_pdrop {}; expected equal ones: here one "
              "probability holds for all",
              c.path(), p, e, a);
  m.dropout = p;
  c.expect("n_inner", {"null", std::to_string(4 * m.width)},
           "the MLP has 4 x n_embd features here");
  check_model(m);
}

hf::Keys config(const ModelConfig& m) {
  std::string dropout = parallel::toml_real(m.dropout);
  return {{"resid_pdrop", dropout}, {"embd_pdrop", dropout}, {"attn_pdrop", dropout}};
}

/// Returns the rules of a block. Weights there are [in, out], here [out, in]; the features of
/// queries, keys and values are [3, heads, head_dim] there, [heads, 3, head_dim] here.
std::vector<Rule> block(const ModelConfig& m, int64_t layer) {
  std::string ours = fmt::format("block{}.", layer), theirs = fmt::format("h.{}.", layer);
  const int64_t w = m.width;
  Shape heads{m.heads, 3, w / m.heads};
  auto qkv = [=](const Tensor& x) {  // returns [w, 3, heads, head_dim]
    return x.view({heads[0], 3, heads[2], -1}).transpose(0, 3).transpose(2, 3);
  };
  auto qkv_bias = [=](const Tensor& x) { return x.view(heads).transpose(0, 1); };
  auto matrix = [&](const char* here, const char* there, Shape full) {
    auto transposed = [](const Tensor& x) { return x.transpose(0, 1); };
    return Rule{ours + here, full, {{theirs + there, {full[1], full[0]}, transposed}}};
  };
  return {same(ours + "norm1.gamma", theirs + "ln_1.weight", {w}),
          same(ours + "norm1.beta", theirs + "ln_1.bias", {w}),
          {ours + "qkv.weight", {3 * w, w}, {{theirs + "attn.c_attn.weight", {w, 3 * w}, qkv}}},
          {ours + "qkv.bias", {3 * w}, {{theirs + "attn.c_attn.bias", {3 * w}, qkv_bias}}},
          matrix("proj.weight", "attn.c_proj.weight", {w, w}),
          same(ours + "proj.bias", theirs + "attn.c_proj.bias", {w}),
          same(ours + "norm2.gamma", theirs + "ln_2.weight", {w}),
          same(ours + "norm2.beta", theirs + "ln_2.bias", {w}),
          matrix("up.weight", "mlp.c_fc.weight", {4 * w, w}),
          same(ours + "up.bias", theirs + "mlp.c_fc.bias", {4 * w}),
          matrix("down.weight", "mlp.c_proj.weight", {w, 4 * w}),
          same(ours + "down.bias", theirs + "mlp.c_proj.bias", {w})};
}

std::vector<Rule> rules(const ModelConfig& m) {
  check_model(m);
  Rule tokens = same("tokens.table", "wte.weight", {m.vocab, m.width});
  tokens.copy = "lm_head.weight";
  std::vector<Rule> all{tokens, same("positions.table", "wpe.weight", {m.context, m.width})};
  for (int64_t i = 0; i < m.layers; ++i)
    for (Rule& rule : block(m, i)) all.push_back(std::move(rule));
  all.push_back(same("final_norm.gamma", "ln_f.weight", {m.width}));
  all.push_back(same("final_norm.beta", "ln_f.bias", {m.width}));
  return all;
}

}  // namespace

hf::Architecture gpt2(Config& c) {
  ModelConfig& m = c.model;
  return {.program = "minigpt",
          .name = "GPT2LMHeadModel",
          .types = {"gpt2"},
          .fitting = [](auto&) -> hf::Class {
            return {"GPT2LMHeadModel", "gpt2"};
          },
          .prefix = "transformer.",
          .settings = only(settings(c), {"layers", "heads", "width", "context", "dropout", "vocab",
                                         "lora", "lora-alpha"}),
          .base = "",
          .table = "tokens.table",
          .context = &m.context,
          .positions = "wpe.weight",
          .sizes = {{"n_layer", &m.layers},
                    {"n_head", &m.heads},
                    {"n_embd", &m.width},
                    {"n_positions", &m.context},
                    {"vocab_size", &m.vocab}},
          .fixed = {{"activation_function",
                     {"\"gelu_new\"", "\"gelu_pytorch_tanh\""},
                     "GELU by tanh is what the MLP has here"},
                    {"layer_norm_epsilon", {"1e-05"}, "it is fixed here"},
                    {"scale_attn_weights", {"true"}, "attention is always scaled here"},
                    {"scale_attn_by_inverse_layer_idx", {"false"}, "all layers are alike here"},
                    {"add_cross_attention", {"false"}, "there is none here"},
                    {"tie_word_embeddings", {"true"}, "the head is the token table here"}},
          .read = [&m](const hf::ModelConfig& json) { read(json, m); },
          .config = [&m](auto&) { return config(m); },
          .rules = [&m] { return rules(m); },
          .ignored = {".attn.bias", ".attn.masked_bias"},  // masks
          .lora = &m.lora,
          .transposed = true,
          .open_file = open_llm_c};
}

}  // namespace triax::minigpt
