#include "examples/minigpt/model.h"

#include <cmath>

#include "core/check.h"

namespace triax::minigpt {
namespace {

constexpr double weight_std = 0.02;

// Every block adds twice to the residual stream: the sum keeps its variance (GPT-2, section 2.3).
double residual_std(const ModelConfig& c) { return weight_std / std::sqrt(2.0 * double(c.layers)); }

}  // namespace

Block::Block(const ModelConfig& c)
    : head_dim_(c.width / c.heads),
      norm1_(child<nn::LayerNorm>("norm1", c.width)),
      norm2_(child<nn::LayerNorm>("norm2", c.width)),
      qkv_(child<nn::Linear>("qkv", c.width, 3 * c.width)),
      proj_(child<nn::Linear>("proj", c.width, c.width, nn::LinearOptions{.std = residual_std(c)})),
      up_(child<nn::Linear>("up", c.width, 4 * c.width)),
      down_(child<nn::Linear>("down", 4 * c.width, c.width,
                              nn::LinearOptions{.std = residual_std(c)})),
      attention_drop_(child<nn::Dropout>("attention_drop", c.dropout)),
      drop1_(child<nn::Dropout>("drop1", c.dropout)),
      drop2_(child<nn::Dropout>("drop2", c.dropout)) {}

Tensor Block::operator()(const Tensor& x, int64_t time, int64_t first) const {
  Tensor a = causal_attention(qkv_(norm1_(x)), {time, head_dim_}, attention_drop_.mask(first));
  Tensor h = x + drop1_(proj_(a), first);
  return h + drop2_(down_(up_.gelu(norm2_(h))), first);
}

Gpt::Gpt(const ModelConfig& c)
    : context_(c.context),
      tokens_(child<nn::Embedding>("tokens", c.vocab, c.width, weight_std)),
      positions_(child<nn::Embedding>("positions", c.context, c.width, weight_std)),
      drop_(child<nn::Dropout>("drop", c.dropout)),
      blocks_(add_blocks(c)),
      final_norm_(child<nn::LayerNorm>("final_norm", c.width)) {}

std::vector<Block*> Gpt::add_blocks(const ModelConfig& c) {
  std::vector<Block*> blocks;
  for (int64_t i = 0; i < c.layers; ++i)
    blocks.push_back(&child<Block>("block" + std::to_string(i), c));
  return blocks;
}

Tensor Gpt::logits(const Tensor& ids, int64_t time, int64_t first) const {
  check(time >= 1 && time <= context_ && ids.numel() % time == 0,
        "gpt: {} tokens in sequences of {}; expected whole sequences of 1 to {} tokens",
        ids.numel(), time, context_);
  Tensor x = drop_(tokens_(ids) + positions(ids.numel(), time), first);
  for (Block* block : blocks_) x = (*block)(x, time, first);
  return tokens_.project(final_norm_(x));
}

/// Rows 0 .. time - 1 of the position table, again for every sequence.
Tensor Gpt::positions(int64_t tokens, int64_t time) const {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(int64_t(i) % time);
  return positions_(from_host(ids, {tokens}, cpu));
}

}  // namespace triax::minigpt
