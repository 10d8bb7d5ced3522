#include "triax/autograd/ops/common.h"

namespace triax {
namespace {

/// Returns x as [tokens, groups, heads, head_dim].
Tensor four_dims(const Tensor& x) {
  Shape sizes = x.shape(), strides = x.strides();
  while (sizes.rank() < 4) sizes.insert(1, 1), strides.insert(1, 0);
  return Tensor(x.storage(), x.dtype(), sizes, strides, x.offset());
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& table, const RotaryShape& shape) {
  autograd::check_float("rotary", x);
  bool heads = x.rank() >= 2 && x.rank() <= 4 && x.size(-1) % 2 == 0;
  check(heads && table.defined() && table.dtype() == f32 && table.device() == x.device() &&
            table.is_contiguous() && table.rank() == 2 && table.size(1) == x.size(-1),
        "rotary: x {} with table {}; expected [tokens, .., head_dim] of at most 4 dims, an even "
        "head_dim, and f32 [positions, head_dim] on the same device",
        x, table);
  check(shape.time >= 1 && shape.time <= table.size(0) && x.size(0) % shape.time == 0,
        "rotary: time {} for {} tokens and a table of {} positions; expected whole sequences of at "
        "most so many",
        shape.time, x.size(0), table.size(0));
  Tensor from = x.strides().back() == 1 ? x.detach() : x.detach().contiguous();
  Rotary r{four_dims(from), table.detach(), shape.time, shape.pairs};
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  backend(x).rotary(r, y.view(r.x.shape()));
  r.x = {};
  r.turn = Rotary::Turn::back;
  y = record("rotary", y, {x}, [r](const Tensor& dy) {
    Rotary back = r;
    back.x = four_dims(dy);
    Tensor dx = empty_like(dy);
    backend(dy).rotary(back, dx.view(back.x.shape()));
    return Tensors{dx};
  });
  note_kept(y, {table});
  return y;
}

}  // namespace triax
