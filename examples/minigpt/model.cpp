#include "examples/minigpt/model.h"

#include <cmath>

#include "triax/core/check.h"

namespace triax::minigpt {
namespace {

using ColumnLinear = parallel::AdaptedColumn;
using RowLinear = parallel::AdaptedRow;
using parallel::TensorParallel;
using Options = parallel::SplitLinearOptions;

constexpr double weight_std = 0.02;

// Every block adds twice to the residual stream: the sum keeps its variance (GPT-2, section 2.3).
double residual_std(const ModelConfig& c) { return weight_std / std::sqrt(2.0 * double(c.layers)); }

/// Returns the number of heads of a rank; ranks hold whole ones.
int64_t heads_of_rank(const ModelConfig& c, const TensorParallel& tp) {
  check_model(c);
  if (c.heads % tp.size() == 0) return c.heads / tp.size();
  std::vector<int64_t> valid;
  for (int64_t n = 1; n <= c.heads && valid.size() < 12; ++n)
    if (c.heads % n == 0) valid.push_back(n);
  fail(Exit::config,
       "tp={} does not divide heads={}\n"
       "  Each rank holds whole attention heads. Valid tp for these heads: {}.",
       tp.size(), c.heads, join(valid, ", "));
}

/// Returns c, if the mesh can split it: checked before any layer is made, whose fault it would
/// seem.
const ModelConfig& checked(const ModelConfig& c, const TensorParallel& tp) {
  (void)heads_of_rank(c, tp);
  return c;
}

int64_t tokens_of(const nn::Batch& batch) { return batch.input.size(1); }

/// Returns x + drop(product(a)).
Tensor onto(const Tensor& x, const RowLinear& product, const Tensor& a,
            const parallel::Dropout& drop, const nn::Batch& batch) {
  if (!drop.drops(batch)) return product.onto(x, a);
  return x + drop(product(a), batch, tokens_of(batch));
}

}  // namespace

Block::Block(const ModelConfig& c, const TensorParallel& tp)
    : tp_(tp),
      heads_(heads_of_rank(c, tp)),
      head_dim_(c.width / c.heads),
      norm1_(child<parallel::LayerNorm>("norm1", c.width, tp)),
      qkv_(child<ColumnLinear>("qkv", c.width, 3 * c.width, tp, Options{}, c.lora)),
      proj_(child<RowLinear>("proj", c.width, c.width, tp, Options{residual_std(c)}, c.lora)),
      norm2_(child<parallel::LayerNorm>("norm2", c.width, tp)),
      up_(child<ColumnLinear>("up", c.width, 4 * c.width, tp, Options{}, c.lora)),
      down_(child<RowLinear>("down", 4 * c.width, c.width, tp, Options{residual_std(c)}, c.lora)),
      attention_drop_(child<nn::Dropout>("attention_drop", c.dropout)),
      drop1_(child<parallel::Dropout>("drop1", c.dropout, tp)),
      drop2_(child<parallel::Dropout>("drop2", c.dropout, tp)) {}

Tensor Block::run(const Tensor& x, const nn::Batch& batch, Saves saves) const {
  return mlp(attend(x, batch, saves), batch, saves);
}

Tensor Block::attend(const Tensor& x, const nn::Batch& batch, Saves saves) const {
  int64_t time = nn::whole_rows(batch, tokens_of(batch));
  auto mask = attention_drop_.mask(nn::serial_of_row(batch, time), tp_.rank() * heads_ * time);
  Tensor qkv = qkv_(norm1_(x));
  // Query, key and value of each head. It must not keep targets until backward.
  auto of = [=, this,
             seen = nn::Batch{.input = batch.input, .rows = batch.rows, .cache = batch.cache}](
                const Tensor& t) {
    return nn::attend(*this, seen, view(t, {-1, heads_, 3, head_dim_}), {.mask = mask});
  };
  Tensor a = of(qkv), y = onto(x, proj_, a, drop1_, batch);
  return remade(saves, y, a, [of, kept = qkv.detach()] { return of(kept); });
}

Tensor Block::mlp(const Tensor& x, const nn::Batch& batch, Saves saves) const {
  if (saves == Saves::all) return onto(x, down_, up_.gelu(norm2_(x)), drop2_, batch);
  Tensor h = up_(norm2_(x)), g = gelu(h), y = onto(x, down_, g, drop2_, batch);
  return remake(y, g, [kept = h.detach()] { return gelu(kept); });
}

Gpt::Gpt(const ModelConfig& c, const TensorParallel& tp)
    : tp_(tp),
      config_(checked(c, tp)),
      tokens_(child<parallel::VocabularyEmbedding>(
          "tokens", c.vocab, c.width, tp,
          parallel::VocabularyOptions{.std = weight_std, .tied = true})),
      positions_(
          child<nn::Embedding>("positions", c.context, c.width,
                               nn::EmbeddingOptions{.std = weight_std, .shard = tp.whole()})),
      drop_(child<parallel::Dropout>("drop", c.dropout, tp)) {
  add("embedding", {&tokens_, &positions_},
      [this](const nn::Batch& batch) { return embed(batch); });
  for (int64_t i = 0; i < c.layers; ++i) add<Block>("block" + std::to_string(i), c, tp);
  auto& norm = child<parallel::LayerNorm>("final_norm", c.width, tp);
  add("head", {&norm, &tokens_}, [this, &norm](const Tensor& x, const nn::Batch& batch) {
    return tokens_.loss(norm(nn::predicted_rows(x, batch)), batch);
  });
  parallel::train_adapters(*this, c.lora);
}

Tensor Gpt::embed(const nn::Batch& batch) const {
  check(batch.input.rank() == 2 && tokens_of(batch) >= 1 && tokens_of(batch) <= config_.context,
        "gpt: input {}; expected [sequences, tokens] with 1 to {} tokens", batch.input,
        config_.context);
  Tensor x = tokens_(batch.input) + positions(batch);
  return drop_(x, batch, tokens_of(batch));
}

/// Returns rows of the position table: a sequence's positions, again for every sequence.
Tensor Gpt::positions(const nn::Batch& batch) const {
  int64_t rows = tp_.rows(batch.input.numel()), row = tp_.first_row(rows);
  auto& [known, first, time, of] = known_;  // alike in every step
  if (!known.defined() || known.size(0) != rows || first != nn::first_position(batch) ||
      time != tokens_of(batch) || of != batch.rows || known.device() != batch.input.device()) {
    first = nn::first_position(batch);
    time = tokens_of(batch), of = batch.rows;
    std::vector<int32_t> of_sample, ids;
    for (const nn::Span& s : nn::spans(batch, time))
      for (int64_t i = 0; i < s.count; ++i) of_sample.push_back(int32_t(first + s.first + i));
    for (int64_t i = 0; i < rows; ++i) ids.push_back(of_sample[size_t((row + i) % time)]);
    {
      memory::Scope scope(memory::buffers);
      known = empty({rows}, i32, batch.input.device());
    }
    copy_(known, from_host(ids, {rows}, cpu));
  }
  return positions_(known);
}

}  // namespace triax::minigpt
