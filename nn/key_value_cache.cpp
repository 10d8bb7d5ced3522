#include "triax/nn/key_value_cache.h"

#include "triax/core/check.h"

namespace triax::nn {
namespace {

/// Returns the shape of attention whose `tokens` [tokens, ..] are equally many of each sample.
AttentionShape shape_of(const Batch& batch, const Tensor& tokens, const AttendOptions& o) {
  int64_t samples = batch.input.size(0);
  check(samples > 0 && tokens.size(0) % samples == 0,
        "attend: {} tokens of {} samples; expected a multiple", tokens.size(0), samples);
  return {.time = tokens.size(0) / samples, .causal = o.causal, .window = o.window};
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t capacity) : capacity_(capacity) {
  check(capacity >= 1, "key-value cache: capacity {}; expected at least 1", capacity);
}

Tensor KeyValueCache::attend(const Module& layer, const Qkv& in, int64_t window) {
  const Tensor& k = in.k;
  int64_t n = k.size(0), end = tokens_ + n;
  check(end <= capacity_, "key-value cache: {} tokens after {}; expected at most {} in all", n,
        tokens_, capacity_);
  auto& [keys, values] = layers_[&layer];
  if (!keys.defined()) {
    memory::Scope scope(memory::buffers);
    Shape shape = k.shape();
    shape[0] = capacity_;
    keys = empty(shape, k.dtype(), k.device());
    values = empty_like(keys);
  }
  copy_(keys.narrow(0, tokens_, n), k.detach());
  copy_(values.narrow(0, tokens_, n), in.v.detach());
  return attention(in.q, keys.narrow(0, 0, end), values.narrow(0, 0, end),
                   {.time = n, .key_time = end, .window = window});
}

void KeyValueCache::advance(int64_t tokens) {
  check(tokens >= 0 && tokens_ + tokens <= capacity_,
        "key-value cache: advanced by {} after {}; expected at most {} in all", tokens, tokens_,
        capacity_);
  tokens_ += tokens;
}

void KeyValueCache::truncate(int64_t tokens) {
  check(tokens >= 0 && tokens <= tokens_, "key-value cache: truncated to {}; expected 0 to {}",
        tokens, tokens_);
  tokens_ = tokens;
}

Tensor attend(const Module& layer, const Batch& batch, const Qkv& in, const AttendOptions& o) {
  if (batch.cache) {
    check(o.causal, "attend: a key-value cache with keys that come later; expected causal");
    return batch.cache->attend(layer, in, o.window);
  }
  AttentionShape shape = shape_of(batch, in.q, o);
  if (batch.rows) return batch.rows->attend(in, shape, o.mask);
  return attention(in.q, in.k, in.v, shape, o.mask);
}

Tensor attend(const Module& layer, const Batch& batch, const Tensor& qkv, const AttendOptions& o) {
  if (!batch.cache && !batch.rows) return attention(qkv, shape_of(batch, qkv, o), o.mask);
  auto parts = split(qkv, 2, {qkv.size(2) - 2, 1, 1});
  return attend(layer, batch, {parts[0], parts[1], parts[2]}, o);
}

}  // namespace triax::nn
