#include <algorithm>

#include "triax/autograd/backward.h"
#include "triax/autograd/gelu.h"
#include "triax/autograd/ops/common.h"
#include "triax/autograd/scopes.h"
#include "triax/core/functors/binary.h"

namespace triax {

using autograd::Into;
using autograd::RowsAlike;

namespace {

/// Returns the shape of a b: broadcast batch dims, then the matrix dims.
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

/// Returns x, copied unless one of its last two dims has a unit stride, which kernels need.
Tensor with_unit_stride(const Tensor& x) {
  return x.strides()[-1] == 1 || x.strides()[-2] == 1 ? x : x.detach().contiguous();
}

/// Returns x with at least this many rows and columns, of zeros.
Tensor padded(const Tensor& x, int64_t rows, int64_t columns) {
  if (!x.defined() || (x.size(-2) >= rows && x.size(-1) >= columns)) return x;
  Shape shape = x.shape();
  shape[-2] = std::max(shape[-2], rows), shape[-1] = std::max(shape[-1], columns);
  Tensor y = zeros(shape, x.dtype(), x.device());
  copy_(y.narrow(-2, 0, x.size(-2)).narrow(-1, 0, x.size(-1)), x);
  return y;
}

/// Makes the product p. Where rows are `alike`, few of them or of the columns are padded to a
/// block.
void multiply(const Matmul& p, bool alike) {
  constexpr int64_t block = Matmul::block;
  int64_t rows = p.c.size(-2), columns = p.c.size(-1);
  if (!alike || (rows >= block && columns >= block)) return backend(p.c).matmul(p);
  Matmul more = p;
  more.a = padded(p.a, block, 0), more.b = padded(p.b, 0, block);
  for (Tensor* x : {&more.c, &more.before, &more.gelu_of}) *x = padded(*x, block, block);
  if (p.bias.defined()) more.bias = padded(p.bias.detach().view({1, columns}), 1, block).view({-1});
  backend(p.c).matmul(more);
  auto inside = [&](const Tensor& x) { return x.narrow(-2, 0, rows).narrow(-1, 0, columns); };
  copy_(p.c, inside(more.c));
  if (p.before.defined()) copy_(p.before, inside(more.before));
}

Tensor multiply(const Tensor& a, const Tensor& b, bool alike) {
  Shape s = product_shape(a, b);
  Tensor y = empty(s, a.dtype(), a.device());
  multiply({stretch_batch(with_unit_stride(a), s), stretch_batch(with_unit_stride(b), s), y},
           alike);
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

/// Returns the rule that only the weights wait for: dw and db.
autograd::Rule weight_rule(const Tensor& input, int64_t out) {
  return [x = input, out, sums = accumulator(input.dtype())](const Tensor& dy, Into& into) {
    Sums dw = into.sums(0, {out, x.size(1)}, sums, x.device());
    Sums db = into.sums(1, {out}, sums, x.device());
    make(WeightGradient{dy, x, dw, db});
    return Tensors{dw.to, db.to};
  };
}

/// Records y = f(x) or rest + f(x), f a product with w [out, in]. The rule makes x's gradient,
/// rounded when complete, or, where x is known to be gelu(h), that of h.
Tensor record_product(Tensor y, const Tensor& input, const Tensor& w, const Tensors& leaves,
                      const Tensor& x, const Tensor& rest = {}) {
  Tensor h = autograd::gelu_input(input);
  bool behind_gelu = h.defined();
  Tensors inputs{behind_gelu ? h : input};
  if (rest.defined()) inputs.push_back(rest);
  auto rule = [w, h = behind_gelu ? h.detach() : h, n = inputs.size(), alike = RowsAlike::now()](
                  const Tensor& dy, Into& into) {
    Tensors d(n);
    if (n > 1) d[1] = dy;
    if (!into.wanted(0)) return d;
    Shape shape{dy.size(0), w.size(1)};
    Sums dx = h.defined() ? into.at(0, shape, w.dtype(), w.device())
                          : into.sums(0, shape, into.dtype(0), w.device(), Sums::Over::features);
    if (dx.grid) input_gradient_on_grid(dy, w, dx);
    else multiply({.a = dy, .b = w, .c = dx.to, .write = dx.write, .gelu_of = h}, alike);
    d[0] = dx.to;
    return d;
  };
  y = record(behind_gelu ? "gelu_linear" : "linear", std::move(y), inputs, std::move(rule), leaves,
             weight_rule(x, w.size(0)));
  note_kept(y, {input});
  return y;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  autograd::check_float("matmul", a);
  autograd::check_same("matmul", a, b);
  Tensor x = a.detach(), z = b.detach();
  bool alike = RowsAlike::now();
  return record("matmul", multiply(x, z, alike), {a, b}, [=](const Tensor& dy, Into& into) {
    Tensors d(2);
    if (into.wanted(0))
      d[0] = autograd::sum_to(multiply(dy, z.transpose(-2, -1), alike), x.shape(), into, 0);
    if (into.wanted(1))
      d[1] = autograd::sum_to(multiply(x.transpose(-2, -1), dy, alike), z.shape(), into, 1);
    return d;
  });
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_linear("linear", input, weight, bias);
  Tensor x = input.detach().contiguous(), w = weight.detach().contiguous();
  Tensor y = empty({x.size(0), w.size(0)}, x.dtype(), x.device());
  multiply({x, w.transpose(0, 1), y, Write::set, bias}, RowsAlike::now());
  return record_product(y, input, w, {weight, bias}, x);
}

Tensor linear_onto(const Tensor& rest, const Tensor& input, const Tensor& weight,
                   const Tensor& bias) {
  check_linear("linear_onto", input, weight, bias);
  autograd::check_same("linear_onto", input, rest);
  check(rest.shape() == Shape{input.size(0), weight.size(0)},
        "linear_onto: {} onto {}; expected [{}, {}]", rest.shape(), input.shape(), input.size(0),
        weight.size(0));
  Tensor x = input.detach().contiguous(), w = weight.detach().contiguous();
  Tensor y = empty(rest.shape(), x.dtype(), x.device());
  Matmul product{x, w.transpose(0, 1), y, Write::set, bias};
  Tensor onto = rest.detach().contiguous();
  if (RowsAlike::now()) {
    multiply(product, true);
    backend(x).binary(binary_id<functors::Add>(), y, onto, y);
  } else {
    backend(x).matmul_onto(product, onto);
  }
  return record_product(y, input, w, {weight, bias}, x, rest);
}

Tensor linear_to(const Sums& y, const Tensor& input, const Tensor& weight) {
  check_linear("linear_to", input, weight, {});
  DType to = y.to.dtype(), wide = accumulator(input.dtype());
  check(y.to.shape() == Shape{input.size(0), weight.size(0)} &&
            (y.grid ? to == f64 : to == input.dtype() || to == wide),
        "linear_to: {} for x {}, weight {}; expected [rows, out], and x's dtype or {}, or f64 on a "
        "grid",
        y.to, input, weight.shape(), wide);
  Tensor x = input.detach().contiguous(), w = weight.detach().contiguous();
  if (y.grid) multiply_on_grid(x, w, y);
  else multiply({x, w.transpose(0, 1), y.to, y.write}, RowsAlike::now());
  Tensor sums = record_product(y.to, input, w, {weight, {}}, x);
  collect_gradient(sums, x.dtype());
  return sums;
}

Tensor linear_gelu(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_linear("linear_gelu", input, weight, bias);
  // Two nodes, so that both rules of the product see the gradient in front of the activation. A
  // next op that is a product applies the slope itself and skips the second node.
  Tensor x = input.detach().contiguous(), w = weight.detach().contiguous();
  Tensor y = empty({x.size(0), w.size(0)}, x.dtype(), x.device()), before = empty_like(y);
  multiply({x, w.transpose(0, 1), y, Write::set, bias, before}, RowsAlike::now());
  Tensor h = record_product(before, input, w, {weight, bias}, x);
  return autograd::record_gelu(y, h, h.detach());
}

namespace {

/// Calls use(weight, rows) of each stretch that has rows.
template <class F> void each_stretch(const std::vector<Stretch>& stretches, F use) {
  int64_t at = 0;
  for (auto& s : stretches) {
    if (s.rows > 0) use(s.weight, Range{at, at + s.rows});
    at += s.rows;
  }
}

Tensor rows_in(const Tensor& x, Range r) { return x.narrow(0, r.begin, r.end - r.begin); }

Tensor weight_of(const Tensor& all, int64_t e) {
  return all.narrow(0, e, 1).view({all.size(1), all.size(2)});
}

void check_stretches(const Tensor& x, const Tensor& w, const std::vector<Stretch>& stretches) {
  autograd::check_float("grouped_linear", x);
  autograd::check_same("grouped_linear", x, w);
  int64_t rows = 0;
  for (auto& s : stretches) {
    check(s.rows >= 0 && s.weight >= 0 && s.weight < w.size(0),
          "grouped_linear: {} rows of weight {} of {}", s.rows, s.weight, w);
    rows += s.rows;
  }
  check(x.rank() == 2 && w.rank() == 3 && x.size(1) == w.size(2) && rows == x.size(0),
        "grouped_linear: x {}, weights {}, stretches of {} rows; expected [rows, in], [weights, "
        "out, in] and all rows",
        x.shape(), w.shape(), rows);
}

/// Returns the rule for dw [weights, out, in], stretch by stretch.
autograd::Rule weights_rule(const Tensor& x, const Shape& shape,
                            const std::vector<Stretch>& stretches) {
  return [=](const Tensor& dy, Into& into) {
    Sums dw = into.sums(0, shape, accumulator(x.dtype()), x.device());
    if (!dw.to.defined()) return Tensors{dw.to};
    std::vector<bool> written(size_t(shape[0]), dw.write == Write::add);
    each_stretch(stretches, [&](int64_t e, Range r) {
      Sums part = dw;
      part.to = weight_of(dw.to, e), part.write = written[size_t(e)] ? Write::add : Write::set;
      make(WeightGradient{rows_in(dy, r), rows_in(x, r), part, {}});
      written[size_t(e)] = true;
    });
    for (int64_t e = 0; e < shape[0]; ++e)
      if (!written[size_t(e)]) fill_(weight_of(dw.to, e), 0);
    return Tensors{dw.to};
  };
}

}  // namespace

Tensor grouped_linear(const Tensor& input, const Tensor& weight,
                      const std::vector<Stretch>& stretches) {
  check_stretches(input, weight, stretches);
  Tensor x = input.detach().contiguous(), w = weight.detach().contiguous();
  Tensor y = empty({x.size(0), w.size(1)}, x.dtype(), x.device());
  bool alike = RowsAlike::now();
  each_stretch(stretches, [&](int64_t e, Range r) {
    multiply({rows_in(x, r), weight_of(w, e).transpose(0, 1), rows_in(y, r)}, alike);
  });
  auto rule = [=](const Tensor& dy, Into& into) {
    if (!into.wanted(0)) return Tensors(1);
    auto [dx, write] = into.at(0, {dy.size(0), w.size(2)}, into.dtype(0), w.device());
    each_stretch(stretches, [&, &dx = dx, write = write](int64_t e, Range r) {
      multiply({.a = rows_in(dy, r), .b = weight_of(w, e), .c = rows_in(dx, r), .write = write},
               alike);
    });
    return Tensors{dx};
  };
  y = record("grouped_linear", y, {input}, std::move(rule), {weight},
             weights_rule(x, w.shape(), stretches));
  note_kept(y, {input});
  return y;
}

}  // namespace triax
