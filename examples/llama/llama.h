#pragma once
#include <cmath>

#include "triax/autograd/saves.h"
#include "triax/core/check.h"
#include "triax/nn/key_value_cache.h"
#include "triax/nn/rotary.h"
#include "triax/nn/sequence.h"
#include "triax/parallel/experts/mixture.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/lora.h"
#include "triax/parallel/tensor/norm.h"

struct LlamaConfig {
  int64_t layers = 4, width = 128, heads = 8, kv_heads = 4, hidden = 344, context = 64;
  int64_t vocab = 0;     ///< 0: as many as the tokenizer has
  int64_t head_dim = 0;  ///< 0: width / heads
  bool qkv_bias = false;
  int64_t window = 0;        ///< a query sees the last `window` keys, its own too; 0: all
  bool norms_after = false;  ///< of what attention and the MLP give, as in OLMo 2; else before them
  /// The RMS norm of queries and keys before rotary: of each head, or of all heads together.
  enum class QkNorm { off, head, all } qk_norm = QkNorm::off;
  triax::nn::RotaryOptions rope = {};
  double norm_eps = 1e-5;
  bool tied = false;                                       ///< the head is the token table
  triax::parallel::RouterOptions router = {.experts = 0};  ///< 0 experts: each block has one MLP
  int64_t expert_hidden = 0;                               ///< features of an expert; 0: `hidden`
  int64_t shared_experts = 0;
  bool shared_gate = false;  ///< a sigmoid weighs what they give
  int64_t dense_layers = 0;  ///< blocks at the beginning that have one MLP all the same
  triax::parallel::LoraOptions lora = {};  ///< beside all projections but those of experts
};

inline int64_t head_dim_of(const LlamaConfig& c) {
  return c.head_dim > 0 ? c.head_dim : c.width / c.heads;
}
inline bool has_experts(const LlamaConfig& c, int64_t block) {
  return c.router.experts > 0 && block >= c.dense_layers;
}
inline int64_t hidden_of_expert(const LlamaConfig& c) {
  return c.expert_hidden > 0 ? c.expert_hidden : c.hidden;
}

/// Throws Error 78 unless the heads, all of one even size, fill the width where they have no size
/// of their own, and form whole groups; and for rotary options that fit nothing.
inline void check_heads(const LlamaConfig& c) {
  bool even = c.head_dim > 0 ? c.head_dim % 2 == 0 : c.width % (2 * c.heads) == 0;
  triax::check_input(
      even && c.heads % c.kv_heads == 0, triax::Exit::config,
      "heads={} with width={}, kv-heads={}, head-dim={}\n  Expected width to be a multiple of 2 x "
      "heads (rotary turns pairs of features) or an even head-dim, and heads one of kv-heads.",
      c.heads, c.width, c.kv_heads, c.head_dim);
  triax::check_input(c.rope.low_turns < c.rope.high_turns, triax::Exit::config,
                     "rope-low-turns={} with rope-high-turns={}\n  Expected the first to be less.",
                     c.rope.low_turns, c.rope.high_turns);
}

/// The first half of a block of Llama 2 and 3 (Touvron et al., 2023): x +
/// attention(norm(x)), or x + norm(attention(x)), with grouped queries; key-value heads are split
/// over the tensor-parallel ranks. x [rows, width]. Blocks add x + f(norm2(x)), or x + norm2(f(x)).
class LlamaAttention : public triax::nn::Module {
 protected:
  using Tensor = triax::Tensor;
  using Batch = triax::nn::Batch;
  using Saves = triax::Saves;
  using ColumnLinear = triax::parallel::AdaptedColumn;
  using RowLinear = triax::parallel::AdaptedRow;
  using RmsNorm = triax::parallel::RmsNorm;
  using Linear = triax::parallel::SplitLinearOptions;

 public:
  LlamaAttention(const LlamaConfig& c, const triax::parallel::TensorParallel& tp)
      : head_dim_(head_dim_of(c)),
        group_(c.heads / c.kv_heads),
        kv_heads_(c.kv_heads / tp.size()),
        window_(c.window),
        norms_after_(c.norms_after),
        rotary_(c.context, head_dim_, c.rope),
        norm1_(child<RmsNorm>("norm1", c.width, tp, c.norm_eps)),
        // features [key-value head][its queries, key, value][head_dim]
        qkv_(child<ColumnLinear>("qkv", c.width, (c.heads + 2 * c.kv_heads) * head_dim_, tp,
                                 Linear{.bias = c.qkv_bias, .unit = (group_ + 2) * head_dim_},
                                 c.lora)),
        q_norm_(head_norm("q_norm", c.heads, c, tp)),
        k_norm_(head_norm("k_norm", c.kv_heads, c, tp)),
        out_(child<RowLinear>("out", c.heads * head_dim_, c.width, tp,
                              Linear{residual_std(c), false, group_ * head_dim_}, c.lora)),
        norm2_(child<RmsNorm>("norm2", c.width, tp, c.norm_eps)) {}

 protected:
  static double residual_std(const LlamaConfig& c) {
    return 0.02 / std::sqrt(2.0 * double(c.layers));
  }

  /// With Saves::less it saves x and the projection alone.
  Tensor attend(const Tensor& x, const Batch& batch, Saves saves) const {
    Tensor qkv = project(qkv_, norm1_, x, saves);
    Batch seen{.input = batch.input, .rows = batch.rows, .cache = batch.cache};  // no targets
    auto turn = [this, seen](const Tensor& heads, const HeadNorm* norm) {
      return rotary_(norm ? (*norm)(heads) : heads, seen);
    };
    // Queries and keys turn together, unless they have norms of their own.
    using Lengths = std::vector<int64_t>;
    auto parts = split(view(qkv, {-1, kv_heads_, group_ + 2, head_dim_}), 2,
                       q_norm_ ? Lengths{group_, 1, 1} : Lengths{group_ + 1, 1});
    triax::Tensors turned{turn(parts[0], q_norm_)};
    if (q_norm_) turned.push_back(turn(parts[1], k_norm_));
    auto in = q_norm_ ? turned : split(turned[0], 2, {group_, 1});
    triax::nn::AttendOptions keys{.window = window_};
    Tensor a = triax::nn::attend(*this, batch, {in[0], in[1], parts.back()}, keys),
           y = added(x, out_, norm1_, a);
    y = remade(
        saves, y, a,
        [this, seen, keys, q = in[0].detach(), k = in[1].detach(), v = parts.back().detach()] {
          return triax::nn::attend(*this, seen, {q, k, v}, keys);
        });
    for (size_t i = 0; i < turned.size(); ++i)
      y = remade(saves, y, turned[i],
                 [turn, heads = parts[i].detach(), norm = i ? k_norm_ : q_norm_] {
                   return turn(heads, norm);
                 });
    return y;
  }

  /// Returns the projection of x, normed before it; with Saves::less x is saved alone.
  Tensor project(const ColumnLinear& projection, const RmsNorm& norm, const Tensor& x,
                 Saves saves) const {
    if (norms_after_) return projection(x);
    Tensor normed = norm(x), y = projection(normed);
    return remade(saves, y, normed, [&norm, x = x.detach()] { return norm(x); });
  }
  Tensor added(const Tensor& x, const RowLinear& out, const RmsNorm& norm, const Tensor& a) const {
    return norms_after_ ? x + norm(out(a)) : out.onto(x, a);
  }

  const RmsNorm& norm2() const { return norm2_; }

 private:
  using HeadNorm = triax::parallel::HeadNorm;
  HeadNorm* head_norm(const char* name, int64_t heads, const LlamaConfig& c,
                      const triax::parallel::TensorParallel& tp) {
    if (c.qk_norm == LlamaConfig::QkNorm::off) return nullptr;
    bool all = c.qk_norm == LlamaConfig::QkNorm::all;
    return &child<HeadNorm>(name, (all ? heads : 1) * head_dim_,
                            all ? heads / c.kv_heads * head_dim_ : 0, tp, c.norm_eps);
  }

  int64_t head_dim_, group_, kv_heads_, window_;  // kv_heads_: of this rank
  bool norms_after_;
  triax::nn::RotaryEmbedding rotary_;
  RmsNorm& norm1_;
  ColumnLinear& qkv_;
  HeadNorm *q_norm_, *k_norm_;  // null: none
  RowLinear& out_;
  RmsNorm& norm2_;
};

/// A block whose f is swiglu, its features split over the tensor-parallel ranks.
class LlamaBlock : public LlamaAttention {
 public:
  static constexpr bool independent = true;  ///< triax::nn::Layer
  LlamaBlock(const LlamaConfig& c, const triax::parallel::TensorParallel& tp)
      : LlamaAttention(c, tp),
        // features gate 0, up 0, gate 1, up 1, ...
        gate_up_(child<ColumnLinear>("gate_up", c.width, 2 * c.hidden, tp,
                                     Linear{.bias = false, .unit = 2}, c.lora)),
        down_(child<RowLinear>("down", c.hidden, c.width, tp, Linear{residual_std(c), false},
                               c.lora)) {}

  Tensor operator()(const Tensor& x, const Batch& b) const { return run(x, b, Saves::all); }
  /// Saves its input, the sum behind attention, and the two projections that they go into; with
  /// norms after them also what they norm.
  Tensor selective(const Tensor& x, const Batch& b) const { return run(x, b, Saves::less); }

 private:
  Tensor run(const Tensor& given, const Batch& batch, Saves saves) const {
    Tensor x = attend(given, batch, saves), h = project(gate_up_, norm2(), x, saves);
    return triax::parallel::gated(h, saves, [&](auto& g) { return added(x, down_, norm2(), g); });
  }

  ColumnLinear& gate_up_;
  RowLinear& down_;
};

/// A block whose f is a mixture of experts.
class LlamaMixtureBlock : public LlamaAttention {
 public:
  LlamaMixtureBlock(const LlamaConfig& c, const triax::parallel::TensorParallel& tp)
      : LlamaAttention(c, tp),
        experts_(child<triax::parallel::Mixture>(
            "experts", c.width,
            triax::parallel::MixtureOptions{.router = c.router,
                                            .hidden = hidden_of_expert(c),
                                            .shared = c.shared_experts,
                                            .shared_gate = c.shared_gate,
                                            .out_std = residual_std(c)},
            tp)) {}

  Tensor operator()(const Tensor& x, const Batch& b) const { return run(x, b, Saves::all); }
  /// As that of LlamaBlock, for each expert.
  Tensor selective(const Tensor& x, const Batch& b) const { return run(x, b, Saves::less); }

 private:
  Tensor run(const Tensor& given, const Batch& batch, Saves saves) const {
    Tensor x = attend(given, batch, saves), normed = norm2()(x);
    return remade(saves, x + experts_(normed, batch, saves), normed,
                  [this, x = x.detach()] { return norm2()(x); });
  }

  triax::parallel::Mixture& experts_;
};

/// Layers `tokens`, `block0` ..., `norm`, `head`. Input and target [sequences, tokens] i32.
class Llama : public triax::nn::Sequence {
 public:
  Llama(const LlamaConfig& c, const triax::parallel::TensorParallel& tp) {
    using Tokens = triax::parallel::TokenLayer;
    triax::parallel::VocabularyOptions table{.tied = c.tied};
    Tokens& tokens = add<Tokens>("tokens", c.vocab, c.width, tp, table);
    for (int64_t i = 0; i < c.layers; ++i) {
      std::string name = "block" + std::to_string(i);
      if (has_experts(c, i)) add<LlamaMixtureBlock>(name, c, tp);
      else add<LlamaBlock>(name, c, tp);
    }
    add<triax::parallel::RmsNorm>("norm", c.width, tp, c.norm_eps);
    if (c.tied)
      add("head", {&tokens}, [&tokens](const triax::Tensor& x, const triax::nn::Batch& batch) {
        return tokens.loss(triax::nn::predicted_rows(x, batch), batch);
      });
    else add<triax::parallel::ClassHead>("head", c.vocab, c.width, tp);
    triax::parallel::train_adapters(*this, c.lora);
  }
};
