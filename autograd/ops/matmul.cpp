#include "autograd/ops/common.h"

namespace triax {

using autograd::Into;

namespace {

/// Batch dims broadcast, then the matrix dims.
Shape product_shape(const Tensor& a, const Tensor& b) {
  check(a.rank() >= 2 && b.rank() >= 2 && a.size(-1) == b.size(-2),
        "matmul: {} x {}; expected [.., m, k] x [.., k, n]", a.shape(), b.shape());
  Shape ba = a.shape(), bb = b.shape();
  for (auto* s : {&ba, &bb}) {
    s->erase(-1);
    s->erase(-1);
  }
  Shape y = broadcast("matmul", ba, bb);
  y.push_back(a.size(-2));
  y.push_back(b.size(-1));
  return y;
}

Tensor stretch_batch(const Tensor& x, const Shape& y) {
  Shape s = y;
  s[-2] = x.size(-2);
  s[-1] = x.size(-1);
  return x.expand(s);
}

/// Kernels want a unit stride in one of the last two dims.
Tensor with_unit_stride(const Tensor& x) {
  return x.strides()[-1] == 1 || x.strides()[-2] == 1 ? x : x.contiguous();
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  Shape s = product_shape(a, b);
  Tensor y = empty(s, a.dtype(), a.device());
  backend(a).matmul(
      {stretch_batch(with_unit_stride(a), s), stretch_batch(with_unit_stride(b), s), y});
  return y;
}

void check_linear(const char* op, const Tensor& x, const Tensor& w, const Tensor& b) {
  autograd::check_float(op, x);
  autograd::check_same(op, x, w);
  check(x.rank() == 2 && w.rank() == 2 && x.size(1) == w.size(1),
        "{}: x {}, weight {}; expected [rows, in] and [out, in]", op, x.shape(), w.shape());
  if (!b.defined()) return;
  autograd::check_same(op, x, b);
  check(b.shape() == Shape{w.size(0)}, "{}: bias {} for weight {}; expected [{}]", op, b.shape(),
        w.shape(), w.size(0));
}

/// dw += dy^T x and db += column sums of dy: what only the weights wait for.
autograd::Rule weight_rule(const Tensor& x, int64_t out) {
  return [x, out](const Tensor& dy, Into& into) {
    Tensors d(2);
    DType sums = accumulator(x.dtype());
    if (into.wanted(0)) {
      auto [dw, write] = into.at(0, {out, x.size(1)}, sums, x.device());
      backend(x).matmul({dy.transpose(0, 1), x, dw, write});
      d[0] = dw;
    }
    if (into.wanted(1)) {
      auto [db, write] = into.at(1, {out}, sums, x.device());
      backend(x).sum(dy, db.view({1, out}), write);
      d[1] = db;
    }
    return d;
  };
}

Tensor input_gradient(const Tensor& dy, const Tensor& w, Into& into) {
  if (!into.wanted(0)) return {};
  auto [dx, write] = into.at(0, {dy.size(0), w.size(1)}, w.dtype(), w.device());
  backend(w).matmul({dy, w, dx, write});
  return dx;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  autograd::check_float("matmul", a);
  autograd::check_same("matmul", a, b);
  Tensor x = a.detach(), z = b.detach();
  return record("matmul", multiply(x, z), {a, b}, [x, z](const Tensor& dy, Into& into) {
    Tensors d(2);
    if (into.wanted(0)) d[0] = autograd::sum_to(multiply(dy, z.transpose(-2, -1)), x.shape());
    if (into.wanted(1)) d[1] = autograd::sum_to(multiply(x.transpose(-2, -1), dy), z.shape());
    return d;
  });
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_linear("linear", input, weight, bias);
  Tensor x = input.contiguous().detach(), w = weight.contiguous().detach();
  Tensor y = empty({x.size(0), w.size(0)}, x.dtype(), x.device());
  backend(x).matmul({x, w.transpose(0, 1), y, Write::set, bias});
  return record(
      "linear", y, {input},
      [w](const Tensor& dy, Into& into) { return Tensors{input_gradient(dy, w, into)}; },
      {weight, bias}, weight_rule(x, w.size(0)));
}

Tensor linear_gelu(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_linear("linear_gelu", input, weight, bias);
  // Two nodes, so that each of the two weight-gradient halves sees the gradient it needs: the
  // activation's slope is applied once, then both rules of the product run on the result.
  Tensor x = input.contiguous().detach(), w = weight.contiguous().detach();
  Tensor y = empty({x.size(0), w.size(0)}, x.dtype(), x.device()), before = empty_like(y);
  backend(x).matmul({x, w.transpose(0, 1), y, Write::set, bias, before});
  Tensor h = record(
      "linear", before, {input},
      [w](const Tensor& dy, Into& into) { return Tensors{input_gradient(dy, w, into)}; },
      {weight, bias}, weight_rule(x, w.size(0)));
  // The slope needs h alone, so y goes as early as the op that takes it lets it.
  return record("gelu", y, {h}, [h = h.detach()](const Tensor& dy, Into& into) {
    auto [dh, write] = into.at(0, h);
    backend(h).unary_backward(unary_id<functors::Gelu>(), h, h, dy, dh, write);
    return Tensors{dh};
  });
}

}  // namespace triax
