#include "examples/minigpt/model.h"

#include <cmath>

#include "core/check.h"

namespace triax::minigpt {
namespace {

using parallel::ColumnLinear;
using parallel::RowLinear;
using parallel::TensorParallel;

constexpr double weight_std = 0.02;

// Every block adds twice to the residual stream: the sum keeps its variance (GPT-2, section 2.3).
double residual_std(const ModelConfig& c) { return weight_std / std::sqrt(2.0 * double(c.layers)); }

int64_t heads_of_rank(const ModelConfig& c, const TensorParallel& tp) {
  check_input(c.heads % tp.size() == 0 && c.width % c.heads == 0, Exit::config,
              "gpt: heads {} over {} tensor-parallel ranks, width {}; expected heads to be a "
              "multiple of the ranks and to divide the width",
              c.heads, tp.size(), c.width);
  return c.heads / tp.size();
}

/// Serial number of the first of this rank's `rows` token rows outside the split stretches.
int64_t first_token(const TensorParallel& tp, const nn::Batch& batch, int64_t rows) {
  return batch.first == nn::evaluation ? nn::evaluation : batch.first + tp.first_row(rows);
}

}  // namespace

Block::Block(const ModelConfig& c, const TensorParallel& tp)
    : tp_(tp),
      heads_(heads_of_rank(c, tp)),
      head_dim_(c.width / c.heads),
      norm1_(child<nn::LayerNorm>("norm1", c.width, nn::NormOptions{.shard = tp.whole()})),
      qkv_(child<ColumnLinear>("qkv", c.width, 3 * c.width, tp)),
      proj_(child<RowLinear>("proj", c.width, c.width, tp,
                             nn::LinearOptions{.std = residual_std(c)})),
      norm2_(child<nn::LayerNorm>("norm2", c.width, nn::NormOptions{.shard = tp.whole()})),
      up_(child<ColumnLinear>("up", c.width, 4 * c.width, tp)),
      down_(child<RowLinear>("down", 4 * c.width, c.width, tp,
                             nn::LinearOptions{.std = residual_std(c)})),
      attention_drop_(child<nn::Dropout>("attention_drop", c.dropout)),
      drop1_(child<nn::Dropout>("drop1", c.dropout)),
      drop2_(child<nn::Dropout>("drop2", c.dropout)) {}

Tensor Block::operator()(const Tensor& x, const nn::Batch& batch, Recompute how) const {
  if (how < Recompute::block) return run(x, batch, how == Recompute::selective);
  nn::Batch place{.time = batch.time, .first = batch.first};  // the tokens need not be kept for it
  auto again = [this, place](const Tensor& input) { return run(input, place, false); };
  return recompute(again, x, how == Recompute::block_split ? tp_.split() : Packing{});
}

Tensor Block::run(const Tensor& x, const nn::Batch& batch, bool remakes) const {
  int64_t first = first_token(tp_, batch, x.size(0));
  Tensor h = x + drop1_(attend(norm1_(x), batch, remakes), first);
  return h + drop2_(mlp(norm2_(h), remakes), first);
}

Tensor Block::attend(const Tensor& x, const nn::Batch& batch, bool remakes) const {
  auto mask = attention_drop_.mask(batch.first, tp_.rank() * heads_ * batch.time);
  Tensor qkv = qkv_(x);
  auto of = [=, shape = AttentionShape{batch.time, head_dim_}](const Tensor& t) {
    return causal_attention(t, shape, mask);
  };
  Tensor a = of(qkv), y = proj_(a);
  return remakes ? remake(y, a, [of, kept = qkv.detach()] { return of(kept); }) : y;
}

Tensor Block::mlp(const Tensor& x, bool remakes) const {
  if (!remakes) return down_(up_.gelu(x));
  Tensor h = up_(x), g = gelu(h), y = down_(g);
  return remake(y, g, [kept = h.detach()] { return gelu(kept); });
}

Gpt::Gpt(const ModelConfig& c, const TensorParallel& tp)
    : tp_(tp),
      config_(c),
      tokens_(child<parallel::VocabularyEmbedding>(
          "tokens", c.vocab, c.width, tp,
          parallel::VocabularyOptions{.std = weight_std, .tied = true})),
      positions_(
          child<nn::Embedding>("positions", c.context, c.width,
                               nn::EmbeddingOptions{.std = weight_std, .shard = tp.whole()})),
      drop_(child<nn::Dropout>("drop", c.dropout)),
      blocks_(add_blocks(c)),
      final_norm_(
          child<nn::LayerNorm>("final_norm", c.width, nn::NormOptions{.shard = tp.whole()})) {}

std::vector<Block*> Gpt::add_blocks(const ModelConfig& c) {
  std::vector<Block*> blocks;
  for (int64_t i = 0; i < c.layers; ++i)
    blocks.push_back(&child<Block>("block" + std::to_string(i), c, tp_));
  return blocks;
}

// Costs are multiplications per token: 12 width^2 in a block's products and 2 width a key in its
// attention, half of the keys being seen; the head's product. Looking a token up costs nothing.
//
// Only blocks are recomputed. The embedding keeps no activation but its output, which is the first
// block's input; the head's backward mostly follows its forward at once.
nn::Layers Gpt::layers(Recompute how) {
  auto width = double(config_.width);
  double block_cost = 12 * width * width + width * double(config_.context);
  nn::Layers layers;
  layers.push_back({"embedding",
                    {&tokens_, &positions_},
                    [this](const Tensor&, const nn::Batch& batch) { return embed(batch); },
                    width});
  for (size_t i = 0; i < blocks_.size(); ++i)
    layers.push_back({"block" + std::to_string(i),
                      {blocks_[i]},
                      [block = blocks_[i], how](const Tensor& x, const nn::Batch& batch) {
                        return (*block)(x, batch, how);
                      },
                      block_cost});
  layers.push_back({"head",
                    {&final_norm_, &tokens_},
                    [this](const Tensor& x, const nn::Batch& batch) { return head(x, batch); },
                    width * double(config_.vocab)});
  return layers;
}

Tensor Gpt::operator()(const nn::Batch& batch) {
  Tensor x;
  for (auto& layer : layers()) x = layer.run(x, batch);
  return x;
}

Tensor Gpt::embed(const nn::Batch& batch) const {
  check(batch.time >= 1 && batch.time <= config_.context && batch.ids.numel() % batch.time == 0,
        "gpt: {} tokens in sequences of {}; expected whole sequences of 1 to {} tokens",
        batch.ids.numel(), batch.time, config_.context);
  Tensor x = tokens_(batch.ids) + positions(batch);
  return drop_(x, first_token(tp_, batch, x.size(0)));
}

/// Rows 0 .. time - 1 of the position table, again for every sequence.
Tensor Gpt::positions(const nn::Batch& batch) const {
  int64_t rows = tp_.rows(batch.ids.numel()), first = tp_.first_row(rows);
  auto& [known, time] = position_ids_;  // alike in every step
  if (!known.defined() || known.size(0) != rows || time != batch.time ||
      known.device() != batch.ids.device()) {
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t((first + int64_t(i)) % batch.time);
    {
      memory::Scope scope(memory::buffers);
      known = empty({rows}, i32, batch.ids.device());
    }
    copy_(known, from_host(ids, {rows}, cpu));
    time = batch.time;
  }
  return positions_(known);
}

Tensor Gpt::head(const Tensor& x, const nn::Batch& batch) const {
  Tensor logits = tokens_.logits(final_norm_(x));
  if (!batch.targets.defined()) return tokens_.whole(logits);
  return tokens_.cross_entropy(std::move(logits), batch.targets,
                               {.reduction = CrossEntropyOptions::Reduction::sum});
}

}  // namespace triax::minigpt
