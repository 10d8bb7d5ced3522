#include "examples/text/decoder.h"

#include <algorithm>

#include "core/check.h"

namespace triax::text {

Tensor Decoder::logits(std::span<const int32_t> tokens) {
  check(!tokens.empty() && std::ssize(tokens) <= context(), "decoder: {} tokens; expected 1 to {}",
        tokens.size(), context());
  auto shared = std::mismatch(tokens.begin(), tokens.end(), read_.begin(), read_.end()).first;
  // The last token is read in any case: its logits are asked for.
  auto known = std::min<int64_t>(shared - tokens.begin(), std::ssize(tokens) - 1);
  cache_.truncate(known);
  auto fresh = tokens.subspan(size_t(known));
  read_.assign(tokens.begin(), tokens.end());
  computed_ += std::ssize(fresh);
  return model_.predict({.input = from_host(fresh, {1, std::ssize(fresh)}, cpu),
                         .first = nn::evaluation,
                         .cache = &cache_});
}

void Window::append(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  auto all = std::ssize(tokens_);
  if (all - begin_ > context_) begin_ = std::max(begin_ + slide_, all - context_);
}

}  // namespace triax::text
