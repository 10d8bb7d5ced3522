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

/// The sum of n products, each of which is made in `part`.
Tensor sum_of(int64_t n, const Tensor& part, const FixedPoint& fixed,
              const std::function<void(int64_t i)>& multiply) {
  Tensor sum = empty(part.shape(), f64, part.device());
  for (int64_t i = 0; i < n; ++i) {
    multiply(i);
    backend(part).accumulate_fixed(part, fixed, sum, i == 0 ? Write::set : Write::add);
  }
  return sum;
}

Tensor part_like(const Tensor& x, int64_t columns) {
  return empty({x.size(0), columns}, accumulator(x.dtype()), x.device());
}

void check_product(const Tensor& x, const Tensor& w, const Tensor& b) {
  bool alike = x.dtype() == w.dtype() && (!b.defined() || b.dtype() == x.dtype());
  check(is_float(x.dtype()) && alike && x.device() == w.device(),
        "linear: x {}, weight {}, bias {}; expected one float dtype and one device", describe(x),
        describe(w), describe(b));
  check(x.rank() == 2 && w.rank() == 2 && x.size(1) == w.size(1),
        "linear: x {}, weight {}; expected [rows, in] and [out, in]", x.shape(), w.shape());
}

/// dw = or += dy^T x, and db the column sums of dy, where one slice of w's rows follows the other.
autograd::Rule weights_in(const Tensor& x, int64_t out, int64_t n) {
  return [=](const Tensor& dy, autograd::Into& into) {
    autograd::Target dw{}, db{};
    if (into.wanted(0)) dw = into.at(0, {out, x.size(1)}, accumulator(x.dtype()), x.device());
    if (into.wanted(1)) db = into.at(1, {out}, accumulator(x.dtype()), x.device());
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
    auto [dw, write] = into.at(0, {out, x.size(1)}, accumulator(x.dtype()), x.device());
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
  if (sequence_) return sum_scattered(parts).to(dtype);
  if (size() > 1) tp_->all_reduce(parts).wait();
  return parts.to(dtype);
}

Tensor TensorParallel::product_in(const Tensor& input, const Tensor& weight,
                                  const Tensor& bias) const {
  check_product(input, weight, bias);
  int64_t n = slices_here();
  Tensor x = sequence_ ? gathered(input) : input.contiguous().detach();
  Tensor w = weight.contiguous().detach();
  Tensor y = empty({x.size(0), w.size(0)}, x.dtype(), x.device());
  for (int64_t i = 0; i < n; ++i)
    backend(x).matmul({x, slice(w, 0, i, n).transpose(0, 1), place(y, 1, i, n), Write::set,
                       bias.defined() ? slice(bias.detach(), 0, i, n) : Tensor()});
  auto rule = [tp = *this, w, n](const Tensor& dy, autograd::Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    Tensor part = part_like(dy, w.size(1));
    Tensor sum = sum_of(n, part, *tp.slices_.backward, [&](int64_t i) {
      backend(w).matmul({slice(dy, 1, i, n), slice(w, 0, i, n), part});
    });
    return Tensors{tp.over_ranks(std::move(sum), dy.dtype())};
  };
  y = record("linear", y, {input}, std::move(rule), {weight, bias}, weights_in(x, w.size(0), n));
  if (!sequence_) return y;
  return remake(y, x, [tp = *this, mine = input.detach()] { return tp.gathered(mine); });
}

Tensor TensorParallel::product_out(const Tensor& input, const Tensor& weight) const {
  check_product(input, weight, {});
  int64_t n = slices_here();
  Tensor x = input.contiguous().detach(), w = weight.contiguous().detach();
  Tensor part = part_like(x, w.size(0));
  Tensor sum = sum_of(n, part, slices_.forward(), [&](int64_t i) {
    backend(x).matmul({slice(x, 1, i, n), slice(w, 1, i, n).transpose(0, 1), part});
  });
  auto all = std::make_shared<Tensor>();  // dy of all rows, from the one rule to the other
  auto rule = [tp = *this, w, n, all](const Tensor& above, autograd::Into& into) {
    Tensor dy = *all = tp.sequence_ ? tp.gathered(above) : above;
    if (!into.wanted(0)) return Tensors{{}};
    Tensor dx = empty({dy.size(0), w.size(1)}, dy.dtype(), dy.device());
    for (int64_t i = 0; i < n; ++i) backend(w).matmul({dy, slice(w, 1, i, n), place(dx, 1, i, n)});
    return Tensors{dx};
  };
  auto weights = [all, rule = weights_out(x, w.size(0), n)](const Tensor&, autograd::Into& into) {
    return rule(std::exchange(*all, {}), into);
  };
  return record("linear", over_ranks(std::move(sum), x.dtype()), {input}, std::move(rule), {weight},
                std::move(weights));
}

}  // namespace triax::parallel
