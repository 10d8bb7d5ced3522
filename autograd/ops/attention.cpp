#include "autograd/ops/common.h"

namespace triax {

Tensor causal_attention(const Tensor& qkv, AttentionShape shape, const random::Mask& mask) {
  autograd::check_float("causal_attention", qkv);
  auto [time, head_dim] = shape;
  check(
      qkv.rank() == 2 && time > 0 && head_dim > 0 && qkv.size(0) % time == 0 &&
          qkv.size(1) % (3 * head_dim) == 0,
      "causal_attention: qkv {} for time {} and head_dim {}; expected whole sequences of rows and "
      "heads * 3 * head_dim columns",
      describe(qkv), time, head_dim);
  check(mask.p >= 0 && mask.p < 1, "causal_attention: p {}; expected 0 <= p < 1", mask.p);
  Attention a{qkv.contiguous().detach(), time, head_dim, mask};
  Tensor y = empty({qkv.size(0), a.heads() * head_dim}, qkv.dtype(), qkv.device());
  Tensor lse = empty({qkv.size(0), a.heads()}, accumulator(qkv.dtype()), qkv.device());
  backend(qkv).causal_attention(a, y, lse);
  return record("causal_attention", y, {qkv}, [a, y = y.detach(), lse](const Tensor& dy) {
    Tensor dqkv = empty_like(a.qkv);
    backend(y).causal_attention_backward(a, y, lse, dy, dqkv);
    return Tensors{dqkv};
  });
}

}  // namespace triax
