#pragma once
#include "examples/minigpt/config.h"
#include "triax/autograd/saves.h"
#include "triax/nn/embedding.h"
#include "triax/nn/key_value_cache.h"
#include "triax/nn/sequence.h"
#include "triax/parallel/tensor/dropout.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/lora.h"
#include "triax/parallel/tensor/norm.h"

namespace triax::minigpt {

/// Pre-norm transformer block (Radford et al., "Language models are unsupervised multitask
/// learners", 2019): x + attention(norm(x)), then x + mlp(norm(x)). Heads and the MLP's features
/// are split over the tensor-parallel ranks. x [rows, width], as outside of TensorParallel.
///
/// Bytes kept from forward to backward, of each of the rows R of a micro-batch, with width w,
/// heads h, t tensor-parallel ranks and s bytes a number (f32: 4), R w s each:
///   off          4 + 12/t: x, both norms' results, the sum between; and / t each: qkv 3,
///                attention 1, before GELU 4, after it 4. (sequence parallel: 16/t)
///   selective    4 + 7/t: without attention's result and GELU's (sequence parallel: 11/t)
///   block        1: x (sequence parallel: 1/t)
///   block_split  1/t
/// and the statistics of the norms, 16 R (sequence parallel: 16 R/t), and of attention, 4 R h/t
/// (not with block).
class Block : public nn::Module {
 public:
  static constexpr bool independent = true;  ///< nn::Layer
  Block(const ModelConfig& c, const parallel::TensorParallel& tp);
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return run(x, batch, Saves::all);
  }
  /// Keeps neither the output of attention nor that of GELU.
  Tensor selective(const Tensor& x, const nn::Batch& batch) const {
    return run(x, batch, Saves::less);
  }

 private:
  Tensor run(const Tensor& x, const nn::Batch& batch, Saves saves) const;
  Tensor attend(const Tensor& x, const nn::Batch& batch, Saves saves) const;
  Tensor mlp(const Tensor& x, const nn::Batch& batch, Saves saves) const;

  parallel::TensorParallel tp_;
  int64_t heads_, head_dim_;  // heads: of this rank
  parallel::LayerNorm& norm1_;
  parallel::AdaptedColumn& qkv_;
  parallel::AdaptedRow& proj_;
  parallel::LayerNorm& norm2_;
  parallel::AdaptedColumn& up_;
  parallel::AdaptedRow& down_;
  nn::Dropout& attention_drop_;
  parallel::Dropout &drop1_, &drop2_;
};

/// A GPT with learned positions and the token table as its head. Layers: `embedding`, `block0` ...,
/// `head`. Input and target [sequences, tokens] i32, of 1 to `context` tokens.
class Gpt : public nn::Sequence {
 public:
  /// Throws Error 78 unless the ranks of `tp` divide the heads, and heads the width. The
  /// communicator behind it must outlive the model.
  Gpt(const ModelConfig& c, const parallel::TensorParallel& tp);

 private:
  Tensor embed(const nn::Batch& batch) const;
  Tensor positions(const nn::Batch& batch) const;

  parallel::TensorParallel tp_;
  ModelConfig config_;
  parallel::VocabularyEmbedding& tokens_;
  nn::Embedding& positions_;
  struct Positions {
    Tensor ids;
    int64_t first = 0, time = 0;  // a sequence's
    const nn::RowRanks* of = nullptr;
  };
  mutable Positions known_;  // those of the last batch
  parallel::Dropout& drop_;
};

}  // namespace triax::minigpt
