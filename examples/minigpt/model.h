#pragma once
#include <cstdint>

#include "examples/minigpt/config.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace triax::minigpt {

/// Pre-norm transformer block (Radford et al., "Language models are unsupervised multitask
/// learners", 2019): x + attention(norm(x)), then x + mlp(norm(x)). x [tokens, width].
class Block : public nn::Module {
 public:
  explicit Block(const ModelConfig& c);
  /// Rows are whole sequences of `time` tokens. `first`: serial number, since the start of
  /// training, of the token in row 0, or nn::evaluation.
  Tensor operator()(const Tensor& x, int64_t time, int64_t first) const;

 private:
  int64_t head_dim_;
  nn::LayerNorm &norm1_, &norm2_;
  nn::Linear &qkv_, &proj_, &up_, &down_;
  nn::Dropout &attention_drop_, &drop1_, &drop2_;
};

/// A GPT with learned positions and the token table as its head.
class Gpt : public nn::Module {
 public:
  explicit Gpt(const ModelConfig& c);
  /// ids [tokens], whole sequences of `time` <= context tokens each -> logits [tokens, vocab].
  Tensor logits(const Tensor& ids, int64_t time, int64_t first) const;

 private:
  std::vector<Block*> add_blocks(const ModelConfig& c);
  Tensor positions(int64_t tokens, int64_t time) const;

  int64_t context_;
  nn::Embedding &tokens_, &positions_;
  nn::Dropout& drop_;
  std::vector<Block*> blocks_;
  nn::LayerNorm& final_norm_;
};

}  // namespace triax::minigpt
