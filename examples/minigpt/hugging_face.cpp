#include "examples/minigpt/hugging_face.h"

#include "core/check.h"
#include "examples/minigpt/llm_c.h"

namespace triax::minigpt {
namespace {

using hf::Rule;
using hf::transposed;

/// There, one probability for each place of dropout.
double read_dropout(const hf::ModelConfig& c) {
  double p = c.real("resid_pdrop", 0.1), e = c.real("embd_pdrop", 0.1),
         a = c.real("attn_pdrop", 0.1);
  check_input(p == e && p == a, Exit::data,
              "resid_pdrop {}, embd_pdrop {}, attn_pdrop {} of config.json; expected equal ones: "
              "here one probability holds for all",
              p, e, a);
  return p;
}

void read(const hf::ModelConfig& c, ModelConfig& m) {
  m = {.layers = c.size("n_layer"),
       .heads = c.size("n_head"),
       .width = c.size("n_embd"),
       .context = c.size("n_positions"),
       .dropout = read_dropout(c),
       .vocab = c.size("vocab_size")};
  c.expect("activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""},
           "GELU by tanh is what the MLP has here");
  c.expect("layer_norm_epsilon", {"1e-05"}, "it is fixed here");
  c.expect("n_inner", {"null", std::to_string(4 * m.width)},
           "the MLP has 4 x n_embd features here");
  c.expect("scale_attn_weights", {"true"}, "attention is always scaled here");
  c.expect("scale_attn_by_inverse_layer_idx", {"false"}, "all layers are alike here");
  c.expect("add_cross_attention", {"false"}, "there is none here");
  c.expect("tie_word_embeddings", {"true"}, "the head is the token table here");
  check_model(m);
}

std::vector<std::pair<std::string, std::string>> config(const ModelConfig& m) {
  std::string dropout = parallel::toml_real(m.dropout);
  return {{"n_layer", std::to_string(m.layers)},
          {"n_head", std::to_string(m.heads)},
          {"n_embd", std::to_string(m.width)},
          {"n_positions", std::to_string(m.context)},
          {"vocab_size", std::to_string(m.vocab)},
          {"activation_function", "\"gelu_new\""},
          {"layer_norm_epsilon", "1e-05"},
          {"resid_pdrop", dropout},
          {"embd_pdrop", dropout},
          {"attn_pdrop", dropout},
          {"bos_token_id", "null"},  // the tokenizer's files know them
          {"eos_token_id", "null"},
          {"tie_word_embeddings", "true"}};
}

/// Weights there are [in, out], here [out, in]; the features of queries, keys and values stand
/// [3, heads, head_dim] there, [heads, 3, head_dim] here.
std::vector<Rule> block(const ModelConfig& m, int64_t layer) {
  std::string ours = fmt::format("block{}.", layer), theirs = fmt::format("h.{}.", layer);
  const int64_t w = m.width;
  Shape heads{m.heads, 3, w / m.heads};
  auto qkv = [=](const Tensor& x) {
    Shape seen = heads;
    seen.insert(3, w);
    return hf::permuted(x.view(seen), {3, 1, 0, 2});
  };
  auto qkv_bias = [=](const Tensor& x) { return x.view(heads).transpose(0, 1); };
  auto vector = [&](const char* here, const char* there, int64_t size) {
    return Rule{ours + here, {size}, {{theirs + there, {size}}}};
  };
  auto matrix = [&](const char* here, const char* there, Shape full) {
    return Rule{ours + here, full, {{theirs + there, {full[1], full[0]}, transposed}}};
  };
  return {vector("norm1.gamma", "ln_1.weight", w),
          vector("norm1.beta", "ln_1.bias", w),
          {ours + "qkv.weight", {3 * w, w}, {{theirs + "attn.c_attn.weight", {w, 3 * w}, qkv}}},
          {ours + "qkv.bias", {3 * w}, {{theirs + "attn.c_attn.bias", {3 * w}, qkv_bias}}},
          matrix("proj.weight", "attn.c_proj.weight", {w, w}),
          vector("proj.bias", "attn.c_proj.bias", w),
          vector("norm2.gamma", "ln_2.weight", w),
          vector("norm2.beta", "ln_2.bias", w),
          matrix("up.weight", "mlp.c_fc.weight", {4 * w, w}),
          vector("up.bias", "mlp.c_fc.bias", 4 * w),
          matrix("down.weight", "mlp.c_proj.weight", {w, 4 * w}),
          vector("down.bias", "mlp.c_proj.bias", w)};
}

std::vector<Rule> rules(const ModelConfig& m) {
  Shape tokens{m.vocab, m.width}, positions{m.context, m.width}, row{m.width};
  std::vector<Rule> all = {{"tokens.table", tokens, {{"wte.weight", tokens}}},
                           {"positions.table", positions, {{"wpe.weight", positions}}}};
  for (int64_t i = 0; i < m.layers; ++i)
    for (Rule& rule : block(m, i)) all.push_back(std::move(rule));
  all.push_back({"final_norm.gamma", row, {{"ln_f.weight", row}}});
  all.push_back({"final_norm.beta", row, {{"ln_f.bias", row}}});
  return all;
}

}  // namespace

hf::Architecture gpt2(Config& c) {
  ModelConfig& m = c.model;
  return {
      .program = "minigpt",
      .name = "GPT2LMHeadModel",
      .type = "gpt2",
      .prefix = "transformer.",
      .settings = only(settings(c), {"layers", "heads", "width", "context", "dropout", "vocab"}),
      .table = "tokens.table",
      .read = [&m](const hf::ModelConfig& json) { read(json, m); },
      .config = [&m] { return config(m); },
      .rules = [&m] { return rules(m); },
      .ignored = {".attn.bias", ".attn.masked_bias"},  // masks
      .copies = {{"lm_head.weight", "wte.weight"}},
      .open_file = open_llm_c};
}

}  // namespace triax::minigpt
