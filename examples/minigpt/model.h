#pragma once
#include <cstdint>

#include "examples/minigpt/config.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/layer.h"
#include "nn/norm.h"
#include "parallel/tensor/embedding.h"
#include "parallel/tensor/linear.h"

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
  Block(const ModelConfig& c, const parallel::TensorParallel& tp);
  Tensor operator()(const Tensor& x, const nn::Batch& batch, Recompute how) const;

 private:
  Tensor run(const Tensor& x, const nn::Batch& batch, bool remakes) const;
  Tensor attend(const Tensor& x, const nn::Batch& batch, bool remakes) const;
  Tensor mlp(const Tensor& x, bool remakes) const;

  parallel::TensorParallel tp_;
  int64_t heads_, head_dim_;  // heads: of this rank
  nn::LayerNorm& norm1_;
  parallel::ColumnLinear& qkv_;
  parallel::RowLinear& proj_;
  nn::LayerNorm& norm2_;
  parallel::ColumnLinear& up_;
  parallel::RowLinear& down_;
  nn::Dropout &attention_drop_, &drop1_, &drop2_;
};

/// A GPT with learned positions and the token table as its head.
class Gpt : public nn::Module {
 public:
  /// Throws Error 78 unless the ranks of `tp` divide heads and width. The communicator behind it
  /// must outlive the model.
  Gpt(const ModelConfig& c, const parallel::TensorParallel& tp);

  /// Embedding, blocks, head, in order. The last returns the sum of the cross-entropy over all
  /// counted targets, [] ; without targets the logits [rows, vocab]. They refer to this model.
  nn::Layers layers(Recompute how = Recompute::off);
  /// All layers in order, for a model that this rank holds whole.
  Tensor operator()(const nn::Batch& batch);

 private:
  Tensor embed(const nn::Batch& batch) const;
  Tensor head(const Tensor& x, const nn::Batch& batch) const;
  std::vector<Block*> add_blocks(const ModelConfig& c);
  Tensor positions(const nn::Batch& batch) const;

  parallel::TensorParallel tp_;
  ModelConfig config_;
  parallel::VocabularyEmbedding& tokens_;
  nn::Embedding& positions_;
  mutable std::pair<Tensor, int64_t> position_ids_;  // of the last batch, and its time
  nn::Dropout& drop_;
  std::vector<Block*> blocks_;
  nn::LayerNorm& final_norm_;
};

}  // namespace triax::minigpt
