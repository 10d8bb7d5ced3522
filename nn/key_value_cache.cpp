#include "nn/key_value_cache.h"

#include "core/check.h"

namespace triax::nn {

KeyValueCache::KeyValueCache(int64_t capacity) : capacity_(capacity) {
  check(capacity >= 1, "key-value cache: capacity {}; expected at least 1", capacity);
}

Tensor KeyValueCache::attend(const Module& layer, const Tensor& q, const Tensor& k,
                             const Tensor& v) {
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
  copy_(values.narrow(0, tokens_, n), v.detach());
  return attention(q, keys.narrow(0, 0, end), values.narrow(0, 0, end),
                   {.time = n, .key_time = end});
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

}  // namespace triax::nn
