// Products of split layers. Where slices of features are added, every mesh computes the same
// products, from the same values, and adds what they come to in fixed point. So the number of ranks
// changes no bit.
#include "autograd/ops.h"
#include "core/check.h"
#include "parallel/tensor/tensor_parallel.h"

namespace triax::parallel {
namespace {

/// Return the n slices of x's rows [n, rows / n, columns], or of its columns [n, rows, columns /
/// n]; x is contiguous. Each slice is a matrix of its own in a batch of products.
Tensor by_rows(const Tensor& x, int64_t n) { return x.view({n, x.size(0) / n, x.size(1)}); }
Tensor by_columns(const Tensor& x, int64_t n) {
  return x.view({x.size(0), n, x.size(1) / n}).transpose(0, 1);
}
/// Returns by_columns(), to be read. Products of one row depend on whether there are gaps in a
/// column, and a rank with one column has none: single columns are copied.
Tensor columns_of(const Tensor& x, int64_t n) {
  Tensor slices = by_columns(x, n);
  return slices.size(2) == 1 ? clone(slices) : slices;
}
/// Returns x itself for each slice.
Tensor for_each(const Tensor& x, int64_t n) {
  return x.view({1, x.size(0), x.size(1)}).expand({n, x.size(0), x.size(1)});
}
Tensor turned(const Tensor& x) { return x.transpose(1, 2); }

/// Returns a b, summed over the slices, of dtype f64: multiples of the unit.
Tensor sum_of_products(const Tensor& a, const Tensor& b, const FixedPoint& fixed) {
  Tensor sum = empty({1, a.size(1), b.size(2)}, f64, a.device());
  Tensor for_all = sum.expand({a.size(0), a.size(1), b.size(2)});
  backend(a).matmul({.a = a, .b = b, .c = for_all, .rounding = &fixed});
  return sum.view({a.size(1), b.size(2)});
}

/// Returns the number of products in which n slices of `features` are made, where they are not
/// added up: one if that gives the same bits.
int64_t products_of(int64_t n, int64_t features) {
  return features / n % Matmul::block == 0 ? 1 : n;
}

/// Checks that dim `cut` of w can be cut into n slices.
void check_product(const Tensor& x, const Tensor& w, const Tensor& b, int cut, int64_t n) {
  bool alike = x.dtype() == w.dtype() && (!b.defined() || b.dtype() == x.dtype());
  check(is_float(x.dtype()) && alike && x.device() == w.device(),
        "linear: x {}, weight {}, bias {}; expected one float dtype and one device", x, w, b);
  check(x.rank() == 2 && w.rank() == 2 && x.size(1) == w.size(1),
        "linear: x {}, weight {}; expected [rows, in] and [out, in]", x.shape(), w.shape());
  check(w.size(cut) % n == 0, "linear: weight {} in {} slices of dim {}; expected a multiple of {}",
        w.shape(), n, cut, n);
}

/// Returns a rule, dw = or += dy^T x, db the column sums of dy; slices of w's rows in turn.
autograd::Rule weights_in(const Tensor& all_x, int64_t out, int64_t n) {
  return [=](const Tensor& all_dy, autograd::Into& into) {
    Tensor x = into.rows(all_x), dy = into.rows(all_dy);
    autograd::ProductTarget dw{};
    autograd::Target db{};
    if (into.wanted(0)) dw = into.product(0, {out, x.size(1)}, accumulator(x.dtype()), x.device());
    if (into.wanted(1)) db = into.at(1, {out}, accumulator(x.dtype()), x.device());
    int64_t apart = products_of(n, out);
    if (dw.grad.defined())
      backend(x).matmul({.a = turned(columns_of(dy, apart)),
                         .b = for_each(x, apart),
                         .c = by_rows(dw.grad, apart),
                         .write = dw.write,
                         .rounding = dw.rounding});
    if (db.grad.defined())
      backend(x).sum(by_columns(dy, n).contiguous(), db.grad.view({n, 1, out / n}), db.write);
    return Tensors{dw.grad, db.grad};
  };
}

/// Returns a rule, dw = or += dy^T x; slices of w's columns follow each other.
autograd::Rule weights_out(const Tensor& all_x, int64_t out, int64_t n) {
  return [=](const Tensor& all_dy, autograd::Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    Tensor x = into.rows(all_x), dy = into.rows(all_dy);
    auto dw = into.product(0, {out, x.size(1)}, accumulator(x.dtype()), x.device());
    int64_t apart = products_of(n, x.size(1));
    backend(x).matmul({.a = turned(for_each(dy, apart)),
                       .b = columns_of(x, apart),
                       .c = by_columns(dw.grad, apart),
                       .write = dw.write,
                       .rounding = dw.rounding});
    return Tensors{dw.grad};
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
  int64_t n = slices_here();
  check_product(input, weight, bias, 0, n);
  Tensor x = sequence_ ? gathered(input) : input.detach().contiguous();
  Tensor w = weight.detach().contiguous();
  Tensor y = empty({x.size(0), w.size(0)}, x.dtype(), x.device());
  int64_t apart = products_of(n, w.size(0)), each = w.size(0) / apart;
  for (int64_t first = 0; first < w.size(0); first += each)
    backend(x).matmul({x, w.narrow(0, first, each).transpose(0, 1), y.narrow(1, first, each),
                       Write::set, bias.defined() ? bias.detach().narrow(0, first, each) : bias});
  auto rule = [tp = *this, w, n](const Tensor& dy, autograd::Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    Tensor sum = sum_of_products(columns_of(dy, n), by_rows(w, n), *tp.slices_.backward);
    return Tensors{tp.over_ranks(std::move(sum), dy.dtype())};
  };
  y = record("linear", y, {input}, std::move(rule), {weight, bias}, weights_in(x, w.size(0), n));
  if (!sequence_) return y;
  return remake(y, x, [tp = *this, mine = input.detach()] { return tp.gathered(mine); });
}

Tensor TensorParallel::product_out(const Tensor& input, const Tensor& weight) const {
  int64_t n = slices_here();
  check_product(input, weight, {}, 1, n);
  Tensor x = input.detach().contiguous(), w = weight.detach().contiguous();
  Tensor sum = sum_of_products(columns_of(x, n), turned(columns_of(w, n)), slices_.forward());
  auto all = std::make_shared<Tensor>();  // dy of all rows, passed from one rule to the other
  auto rule = [tp = *this, w, n, all](const Tensor& above, autograd::Into& into) {
    Tensor dy = *all = tp.sequence_ ? tp.gathered(above) : above;
    if (!into.wanted(0)) return Tensors{{}};
    Tensor dx = empty({dy.size(0), w.size(1)}, dy.dtype(), dy.device());
    int64_t apart = products_of(n, w.size(1));
    backend(w).matmul({for_each(dy, apart), columns_of(w, apart), by_columns(dx, apart)});
    return Tensors{dx};
  };
  auto weights = [all, rule = weights_out(x, w.size(0), n)](const Tensor&, autograd::Into& into) {
    return rule(*all, into);
  };
  return record("linear", over_ranks(std::move(sum), x.dtype()), {input}, std::move(rule), {weight},
                std::move(weights));
}

}  // namespace triax::parallel
