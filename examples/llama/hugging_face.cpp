#include <algorithm>
#include <utility>

#include "examples/llama/program.h"
#include "triax/core/check.h"

using namespace triax;

namespace {

using hf::Rule;
using hf::same;
using Router = parallel::RouterOptions;

/// A class of transformers, by what its models have.
struct Kind {
  const char *name, *type;
  LlamaConfig::QkNorm qk_norm;
  bool qkv_bias;
  /// The mixture: with Mixtral's names and weights that add up to 1; of experts as large as an MLP;
  /// of another size; and with shared ones beside them.
  enum Experts { none, mixtral, plain, sized, shared } experts;
  double theta, eps;                         ///< where config.json has none
  bool window = false, norms_after = false;  ///< may have a window; always has such norms
};
constexpr auto off = LlamaConfig::QkNorm::off;
constexpr Kind kinds[] = {
    {"LlamaForCausalLM", "llama", off, false, Kind::none, 1e4, 1e-6},
    {"MistralForCausalLM", "mistral", off, false, Kind::none, 1e4, 1e-6, true},
    {"Olmo2ForCausalLM", "olmo2", LlamaConfig::QkNorm::all, false, Kind::none, 1e4, 1e-5, false,
     true},
    {"Qwen2ForCausalLM", "qwen2", off, true, Kind::none, 1e4, 1e-6},
    {"Qwen3ForCausalLM", "qwen3", LlamaConfig::QkNorm::head, false, Kind::none, 1e4, 1e-6},
    {"MixtralForCausalLM", "mixtral", off, false, Kind::mixtral, 1e6, 1e-5, true},
    {"OlmoeForCausalLM", "olmoe", LlamaConfig::QkNorm::all, false, Kind::plain, 1e4, 1e-5},
    {"Qwen2MoeForCausalLM", "qwen2_moe", off, true, Kind::shared, 1e4, 1e-6},
    {"Qwen3MoeForCausalLM", "qwen3_moe", LlamaConfig::QkNorm::head, false, Kind::sized, 1e4, 1e-6}};

/// Returns the first setting whose value no model of this class has; empty: none.
std::string misfit(const Kind& k, const LlamaConfig& m) {
  const Router& r = m.router;
  if ((r.experts > 0) != (k.experts != Kind::none)) return "experts";
  if (m.qk_norm != k.qk_norm) return "qk-norm";
  if (m.qkv_bias != k.qkv_bias) return "qkv-bias";
  if (m.window > 0 && !k.window) return "window";
  if (m.norms_after != k.norms_after) return "norms-after";
  if (k.experts == Kind::none) return "";
  if ((m.shared_experts > 0) != (k.experts == Kind::shared)) return "shared-experts";
  if (m.shared_gate != (k.experts == Kind::shared)) return "shared-gate";
  if (m.dense_layers > 0 && k.experts < Kind::sized) return "dense-layers";
  if (r.score != Router::Score::softmax) return "router-score";
  if (r.weights == Router::Weights::plain && k.experts == Kind::mixtral) return "router-weights";
  if (r.weight_scale != 1) return "router-scale";
  return r.bias_rate > 0 ? "balance-bias" : "";
}

/// Returns the class whose models have these settings, that of type `wanted` if it has. Throws
/// Error 78 if there is none.
const Kind& kind_of(const LlamaConfig& m, const std::string& wanted = "") {
  for (const Kind& k : kinds)
    if (k.type == wanted && misfit(k, m).empty()) return k;
  std::string others;
  for (const Kind& k : kinds) {
    std::string wrong = misfit(k, m);
    if (wrong.empty()) return k;
    others += fmt::format("\n  {}: not with this {}", k.name, wrong);
  }
  fail(Exit::config, "transformers has no such model; expected settings of a class:{}", others);
}

/// Returns the JSON of the numbers of the first n blocks.
std::string first_blocks(int64_t n) {
  std::string all;
  for (int64_t i = 0; i < n; ++i) all += fmt::format("{}{}", i > 0 ? "," : "", i);
  return "[" + all + "]";
}

/// Reads `rope_theta` and `rope_scaling` of older files; newer ones have all in `rope_parameters`,
/// unless there is a `rope_scaling`, too.
nn::RotaryOptions read_rope(const hf::ModelConfig& c, double theta) {
  auto scaling = c.object("rope_scaling");
  if (!scaling) scaling = c.object("rope_parameters");
  nn::RotaryOptions rope{.base = c.real("rope_theta", theta)};
  if (scaling) rope.base = scaling->real("rope_theta", rope.base);
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
  const Kind& k = *std::ranges::find(kinds, c.text("model_type"), &Kind::type);
  c.expect("use_sliding_window", {"null", "false"}, "queries see all keys here");
  if (k.qkv_bias) c.expect("qkv_bias", {"true"}, "models of this class have them here");
  // Where the key is not there, MistralConfig has 4096, and MixtralConfig none.
  int64_t otherwise = k.experts == Kind::none && !c.names("sliding_window") ? 4096 : 0;
  m.window = k.window ? c.size("sliding_window", otherwise) : 0;
  c.expect("decoder_sparse_step", {"1"}, "blocks without experts are the first ones here");
  c.expect("router_jitter_noise", {"0.0"}, "there is no jitter here");
  c.expect("clip_qkv", {"null"}, "nothing is clipped here");
  m.hidden = c.size("intermediate_size");
  m.kv_heads = c.size("num_key_value_heads", m.heads);
  m.head_dim = c.size("head_dim", 0);
  if (m.head_dim * m.heads == m.width) m.head_dim = 0;
  m.rope = read_rope(c, k.theta);
  m.norm_eps = c.real("rms_norm_eps", k.eps);
  m.tied = c.flag("tie_word_embeddings", false);
  m.qk_norm = k.qk_norm, m.qkv_bias = k.qkv_bias, m.norms_after = k.norms_after;
  check_heads(m);
  if (k.experts == Kind::none) return;
  m.router.experts = c.size(c.has("num_local_experts") ? "num_local_experts" : "num_experts");
  m.router.top_k = c.size("num_experts_per_tok");
  bool normalized = k.experts == Kind::mixtral || c.flag("norm_topk_prob", false);
  m.router.weights = normalized ? Router::Weights::normalized : Router::Weights::plain;
  if (k.experts < Kind::sized) return;
  m.expert_hidden = c.size("moe_intermediate_size");
  std::string dense = c.literal("mlp_only_layers");
  m.dense_layers = dense.starts_with("[0") ? std::ranges::count(dense, ',') + 1 : 0;
  c.expect("mlp_only_layers", {first_blocks(m.dense_layers), "null"},
           "they are the first ones here");
  if (k.experts < Kind::shared) return;
  int64_t shared = c.size("shared_expert_intermediate_size") / m.expert_hidden;
  m.shared_experts = std::max<int64_t>(shared, 1), m.shared_gate = true;  // else shapes differ
}

hf::Keys config(const LlamaConfig& m, const std::string& wanted) {
  const Kind& k = kind_of(m, wanted);
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
  bool one_size = k.experts == Kind::mixtral || k.experts == Kind::plain;
  hf::Keys keys{{"intermediate_size", std::to_string(one_size ? hidden_of_expert(m) : m.hidden)},
                {"num_key_value_heads", std::to_string(m.kv_heads)},
                {"head_dim", std::to_string(head_dim_of(m))},
                {"rope_theta", real(r.base)},
                {"rope_scaling", scaling},
                {"rms_norm_eps", real(m.norm_eps)},
                {"tie_word_embeddings", m.tied ? "true" : "false"}};
  if (k.window) keys.emplace_back("sliding_window", m.window ? std::to_string(m.window) : "null");
  if (k.experts == Kind::none) return keys;
  auto add = [&](const char* key, int64_t n) { keys.emplace_back(key, std::to_string(n)); };
  bool normalized = m.router.weights == Router::Weights::normalized;
  add(k.experts == Kind::mixtral ? "num_local_experts" : "num_experts", m.router.experts);
  add("num_experts_per_tok", m.router.top_k);
  keys.emplace_back("norm_topk_prob", normalized ? "true" : "false");
  if (k.experts < Kind::sized) return keys;
  add("moe_intermediate_size", hidden_of_expert(m));
  keys.emplace_back("mlp_only_layers", first_blocks(m.dense_layers));
  if (k.experts == Kind::shared)
    add("shared_expert_intermediate_size", m.shared_experts * hidden_of_expert(m));
  return keys;
}

using Rules = std::vector<Rule>;

/// Adds the rules of attention. Projections are joint: features [key-value head][its queries, key,
/// value][head_dim]. Rotary turns halves of a head in both.
void add_attention(Rules& all, const LlamaConfig& m, const std::string& ours,
                   const std::string& theirs) {
  const int64_t d = head_dim_of(m), group = m.heads / m.kv_heads;
  auto part = [&](const std::string& name, int64_t first, int64_t count, Shape shape) {
    shape[0] = m.kv_heads * count * d;
    return hf::Part{theirs + name, shape, [=, kv = m.kv_heads](const Tensor& x) {
                      return x.view({kv, group + 2, d, -1}).narrow(1, first, count);
                    }};
  };
  auto add_joint = [&](const std::string& kind, const Shape& full) {
    all.push_back({ours + "qkv." + kind,
                   full,
                   {part("q_proj." + kind, 0, group, full), part("k_proj." + kind, group, 1, full),
                    part("v_proj." + kind, group + 1, 1, full)}});
  };
  add_joint("weight", {(m.heads + 2 * m.kv_heads) * d, m.width});
  if (m.qkv_bias) add_joint("bias", {(m.heads + 2 * m.kv_heads) * d});
  all.push_back(same(ours + "out.weight", theirs + "o_proj.weight", {m.width, m.heads * d}));
  if (m.qk_norm == off) return;
  for (auto& [norm, heads] : {std::pair("q_norm.", m.heads), {"k_norm.", m.kv_heads}})
    all.push_back(same(ours + norm + "gamma", theirs + norm + "weight",
                       {m.qk_norm == LlamaConfig::QkNorm::all ? heads * d : d}));
}

constexpr const char *names[] = {"gate_proj", "up_proj", "down_proj"},
                     *mixtral_names[] = {"w1", "w3", "w2"};

/// Adds the parts of an MLP: features gate 0, up 0, gate 1, up 1, ..; `index`: of an expert.
void add_parts(Rule& in, Rule& out, const std::string& theirs, const char* const (&n)[3],
               int64_t index = -1) {
  const int64_t w = in.full[-1], h = out.full[-1];
  for (int64_t i : {0, 1}) {
    auto turn = [=](const Tensor& x) { return x.view({h, 2, -1}).narrow(1, i, 1); };
    in.parts.push_back({theirs + n[i] + ".weight", {h, w}, turn, index});
  }
  out.parts.push_back({theirs + n[2] + ".weight", {w, h}, {}, index});
}

void add_mlp(Rules& all, const std::string& ours, const std::string& theirs, int64_t w, int64_t h) {
  Rule in{ours + "gate_up.weight", {2 * h, w}, {}}, out{ours + "down.weight", {w, h}, {}};
  add_parts(in, out, theirs, names);
  all.insert(all.end(), {in, out});
}

void add_mixture(Rules& all, const Kind& k, const LlamaConfig& m, const std::string& ours,
                 const std::string& theirs) {
  const int64_t n = m.router.experts, w = m.width, h = hidden_of_expert(m);
  Rule in{ours + "gate_up", {n, 2 * h, w}, {}}, out{ours + "down", {n, w, h}, {}};
  for (int64_t i = 0; i < n; ++i)
    add_parts(in, out, fmt::format("{}experts.{}.", theirs, i),
              k.experts == Kind::mixtral ? mixtral_names : names, i);
  all.push_back(same(ours + "router.weight", theirs + "gate.weight", {n, w}));
  all.insert(all.end(), {{ours + "router.load", {n}, {}}, in, out});
  if (k.experts != Kind::shared) return;
  add_mlp(all, ours + "shared_", theirs + "shared_expert.", w, m.shared_experts * h);
  all.push_back(same(ours + "shared_gate.weight", theirs + "shared_expert_gate.weight", {1, w}));
}

Rules rules(const LlamaConfig& m) {
  check_heads(m), check_experts(m);
  const Kind& k = kind_of(m);
  const Shape table{m.vocab, m.width};
  Rules all{same("tokens.table", "model.embed_tokens.weight", table)};
  for (int64_t i = 0; i < m.layers; ++i) {
    std::string ours = fmt::format("block{}.", i), theirs = fmt::format("model.layers.{}.", i);
    const char *first = "post_attention_layernorm.weight",
               *second = "post_feedforward_layernorm.weight";
    if (!m.norms_after) second = std::exchange(first, "input_layernorm.weight");
    all.push_back(same(ours + "norm1.gamma", theirs + first, {m.width}));
    add_attention(all, m, ours, theirs + "self_attn.");
    all.push_back(same(ours + "norm2.gamma", theirs + second, {m.width}));
    std::string mlp = theirs + (k.experts == Kind::mixtral ? "block_sparse_moe." : "mlp.");
    if (has_experts(m, i)) add_mixture(all, k, m, ours + "experts.", mlp);
    else add_mlp(all, ours, mlp, m.width, m.hidden);
  }
  all.push_back(same("norm.gamma", "model.norm.weight", {m.width}));
  if (m.tied) all[0].copy = "lm_head.weight";
  else all.push_back(same("head.table", "lm_head.weight", table));
  return all;
}

}  // namespace

hf::Architecture llama_of_hugging_face(LlamaConfig& c, const parallel::Settings& settings) {
  std::vector<std::string> classes, types;
  for (const Kind& k : kinds) classes.emplace_back(k.name), types.emplace_back(k.type);
  return {.program = "triax-llama",
          .name = join(classes, " or "),
          .types = types,
          .fitting = [&c](auto& wanted) -> hf::Class {
            const Kind& k = kind_of(c, wanted);
            return {k.name, k.type};
          },
          .prefix = "",
          .settings = settings,
          .base = "model.",
          .table = "tokens.table",
          .context = &c.context,
          .positions = "",
          .sizes = {{"num_hidden_layers", &c.layers},
                    {"hidden_size", &c.width},
                    {"num_attention_heads", &c.heads},
                    {"max_position_embeddings", &c.context},
                    {"vocab_size", &c.vocab}},
          .fixed = {{"hidden_act", {"\"silu\""}, "the MLP is SwiGLU here"},
                    {"attention_bias", {"false"}, "the way out has no bias here"},
                    {"mlp_bias", {"false"}, "there are no biases here"},
                    {"attention_dropout", {"0.0", "0"}, "there is no dropout here"}},
          .read = [&c](const hf::ModelConfig& json) { read(json, c); },
          .config = [&c](auto& wanted) { return config(c, wanted); },
          .rules = [&c] { return rules(c); },
          .ignored = {".rotary_emb.inv_freq"},
          .experts = &c.router.experts,
          .lora = &c.lora};
}
