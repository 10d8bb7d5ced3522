// Products of split layers, made slice by slice: every mesh computes the same ones, from the same
// values, and adds what they come to in fixed point. So the number of ranks changes no bit.
#include "autograd/ops.h"
#include "core/check.h"
#include "parallel/tensor/tensor_parallel.h"

namespace triax::parallel {
namespace {

/// Slice `i` of `n` of a dim.
Tensor place(const Tensor& x, int dim, int64_t i, int64_t n) {
  int64_t each = x.size(dim) / n;
  return x.narrow(dim, i * each, each);
}
/// A copy, so that a product cannot depend on what lies beside it.
Tensor slice(const Tensor& x, int dim, int64_t i, int64_t n) {
  return place(x, dim, i, n).contiguous();
}

/// The sum of n products [rows, columns], f64.
Tensor sum_of(int64_t n, const Shape& shape, Device device, const FixedPoint& fixed,
              const std::function<void(int64_t i, const Tensor& part)>& multiply) {
  Tensor part = empty(shape, f32, device), sum = empty(shape, f64, device);
  for (int64_t i = 0; i < n; ++i) {
    multiply(i, part);
    backend(part).accumulate_fixed(part, fixed, sum, i == 0 ? Write::set : Write::add);
  }
  return sum;
}

/// dw = or += dy^T x, and db the column sums of dy, where one slice of w's rows follows the other.
autograd::Rule weights_in(const Tensor& x, int64_t out, int64_t n) {
  return [=](const Tensor& dy, autograd::Into& into) {
    autograd::Target dw{}, db{};
    if (into.wanted(0)) dw = into.at(0, {out, x.size(1)}, f32, x.device());
    if (into.wanted(1)) db = into.at(1, {out}, f32, x.device());
    for (int64_t i = 0; i < n; ++i) {
      Tensor part = slice(dy, 1, i, n);
      if (dw.grad.defined())
        backend(x).matmul(
            {.a = part.transpose(0, 1), .b = x, .c = place(dw.grad, 0, i, n), .write = dw.write});
      if (db.grad.defined())
        backend(x).sum(part, place(db.grad, 0, i, n).view({1, out / n}), db.write);
    }
    return Tensors{dw.grad, db.grad};
  };
}

/// dw = or += dy^T x, slice by slice of both's columns.
autograd::Rule weights_out(const Tensor& x, int64_t out, int64_t n) {
  return [=](const Tensor& dy, autograd::Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    auto [dw, write] = into.at(0, {out, x.size(1)}, f32, x.device());
    for (int64_t i = 0; i < n; ++i)
      backend(x).matmul({.a = dy.transpose(0, 1),
                         .b = slice(x, 1, i, n),
                         .c = place(dw, 1, i, n),
                         .write = write});
    return Tensors{dw};
  };
}

}  // namespace

Tensor TensorParallel::over_ranks(Tensor parts, DType dtype) const {
  if (size() > 1) {
    if (!parts.exclusive()) parts = clone(parts);
    tp_->all_reduce(parts).wait();
  }
  return parts.to(dtype);
}

Tensor TensorParallel::product_in(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  int64_t n = slices_here();
  auto sum = [tp = *this, dtype = x.dtype()](Tensor dy, autograd::Into&) {
    return Tensors{tp.over_ranks(std::move(dy), dtype)};
  };
  Tensor all = record("enter", x.detach(), {x}, autograd::Rule(sum));
  collect_fixed(all, slices_.backward);
  Tensor in = all.contiguous().detach(), w = weight.contiguous().detach();
  Tensor y = empty({in.size(0), w.size(0)}, in.dtype(), in.device());
  for (int64_t i = 0; i < n; ++i)
    backend(in).matmul({in, slice(w, 0, i, n).transpose(0, 1), place(y, 1, i, n), Write::set,
                        bias.defined() ? slice(bias.detach(), 0, i, n) : Tensor()});
  auto rule = [w, n, shape = in.shape(), fixed = slices_.backward](const Tensor& dy,
                                                                   autograd::Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    return Tensors{sum_of(n, shape, w.device(), *fixed, [&](int64_t i, const Tensor& part) {
      backend(w).matmul({slice(dy, 1, i, n), slice(w, 0, i, n), part});
    })};
  };
  return record("linear", y, {all}, std::move(rule), {weight, bias}, weights_in(in, w.size(0), n));
}

Tensor TensorParallel::product_out(const Tensor& input, const Tensor& weight) const {
  int64_t n = slices_here();
  Tensor x = input.contiguous().detach(), w = weight.contiguous().detach();
  auto fixed = FixedPoint::of(0x1p-34, slices_.count);
  Tensor y =
      sum_of(n, {x.size(0), w.size(0)}, x.device(), fixed, [&](int64_t i, const Tensor& part) {
        backend(x).matmul({slice(x, 1, i, n), slice(w, 1, i, n).transpose(0, 1), part});
      });
  auto rule = [w, n](const Tensor& dy, autograd::Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    Tensor dx = empty({dy.size(0), w.size(1)}, dy.dtype(), dy.device());
    for (int64_t i = 0; i < n; ++i) backend(w).matmul({dy, slice(w, 1, i, n), place(dx, 1, i, n)});
    return Tensors{dx};
  };
  return record("linear", over_ranks(y, x.dtype()), {input}, std::move(rule), {weight},
                weights_out(x, w.size(0), n));
}

}  // namespace triax::parallel
