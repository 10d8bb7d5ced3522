#include "triax/core/shared/attention.h"

namespace triax {

Qkv unpack(const Tensor& packed) {
  int64_t group = packed.size(2) - 2;
  return {packed.narrow(2, 0, group), packed.narrow(2, group, 1), packed.narrow(2, group + 1, 1)};
}

int64_t Attention::sequences() const { return in.q.size(0) / time; }
int64_t Attention::kv_heads() const { return in.q.size(1); }
int64_t Attention::group() const { return in.q.size(2); }
int64_t Attention::heads() const { return kv_heads() * group(); }
int64_t Attention::head_dim() const { return in.q.size(3); }

}  // namespace triax
