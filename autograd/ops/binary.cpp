#include "triax/core/functors/binary.h"

#include "triax/autograd/backward.h"
#include "triax/autograd/ops/common.h"
#include "triax/core/shared/convert.h"

namespace triax {

using autograd::Into;
using autograd::sum_to;

namespace {

/// Returns `a op b`, broadcast, without history.
template <class Functor> Tensor apply(const Tensor& a, const Tensor& b) {
  Shape shape = broadcast(Functor::name, a.shape(), b.shape());
  Tensor y = empty(shape, a.dtype(), a.device());
  backend(a).binary(binary_id<Functor>(), a.detach().expand(shape), b.detach().expand(shape), y);
  return y;
}

template <class Functor> Tensor checked(const Tensor& a, const Tensor& b) {
  autograd::check_float(Functor::name, a);
  autograd::check_same(Functor::name, a, b);
  return apply<Functor>(a, b);
}

Tensor mul(const Tensor& a, const Tensor& b) { return apply<functors::Mul>(a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return apply<functors::Div>(a, b); }

/// Returns x, converted to f64 if it holds integers.
Tensor as_float(const Tensor& x) { return x.defined() && !is_float(x.dtype()) ? x.to(f64) : x; }

template <class Functor> Tensor mask(const Tensor& a, const Tensor& b) {
  return checked<Functor>(as_float(a), as_float(b)).to(u8);
}

Tensor scalar(const Tensor& like, double value) {
  check(like.defined(), "scalar: the other operand is undefined");
  return full({}, value, like.dtype(), like.device());
}

/// True if x's 16 bits would round `number`. A product is then made in the accumulator dtype, as
/// PyTorch makes those with Python's numbers; for sums PyTorch rounds the number.
bool rounds(const Tensor& x, double number) {
  if (!x.defined() || (x.dtype() != f16 && x.dtype() != bf16)) return false;
  return visit_float(x.dtype(), [&]<class T>() {
    return double(convert<float>(convert<T>(float(number)))) != number;
  });
}

/// Returns y = op(x, number), made in the accumulator dtype; dx = slope(dy).
template <class Functor, class F> Tensor with_number(const Tensor& x, double number, F slope) {
  DType wide = accumulator(x.dtype());
  Tensor y = apply<Functor>(x.detach().to(wide), full({}, number, wide, x.device())).to(x.dtype());
  return record(Functor::name, y, {x}, [slope](const Tensor& dy) { return Tensors{slope(dy)}; });
}

}  // namespace

autograd::Rule autograd::bias_rule(const Tensor& b) {
  return [s = b.shape(), dtype = accumulator(b.dtype())](const Tensor& dy, Into& into) {
    Sums db = into.sums(0, s, dtype, dy.device());
    sum_rows(dy, db);
    return Tensors{db.to};
  };
}

Tensor autograd::sum_to(const Tensor& x, const Shape& shape, DType dtype) {
  if (x.shape() == shape) return x;
  Shape kept = shape;
  while (kept.rank() < x.rank()) kept.insert(0, 1);
  Tensor y = empty(kept, dtype, x.device());
  backend(x).sum(x, y, Write::set);
  return y.view(shape);
}

Tensor operator+(const Tensor& a, const Tensor& b) {
  Tensor y = checked<functors::Add>(a, b);
  bool bias =
      requires_grad(b) && b.meta()->node->is_leaf && b.rank() == 1 && a.shape() == y.shape();
  if (bias && a.rank() == 2)
    return record(
        "add", y, {a}, [](const Tensor& dy, Into&) { return Tensors{dy}; }, {b},
        autograd::bias_rule(b));
  return record("add", y, {a, b}, [sa = a.shape(), sb = b.shape()](const Tensor& dy, Into& into) {
    return Tensors{sum_to(dy, sa, into, 0), sum_to(dy, sb, into, 1)};
  });
}

Tensor operator-(const Tensor& a, const Tensor& b) {
  Tensor y = checked<functors::Sub>(a, b);
  return record("sub", y, {a, b}, [sa = a.shape(), sb = b.shape()](const Tensor& dy, Into& into) {
    Tensor db = into.wanted(1) ? -sum_to(dy, sb, into, 1) : Tensor();
    return Tensors{sum_to(dy, sa, into, 0), db};
  });
}

Tensor operator*(const Tensor& a, const Tensor& b) {
  Tensor y = checked<functors::Mul>(a, b);
  return record("mul", y, {a, b}, [x = a.detach(), z = b.detach()](const Tensor& dy, Into& into) {
    Tensors d(2);
    if (into.wanted(0)) d[0] = sum_to(mul(dy, z), x.shape(), into, 0);
    if (into.wanted(1)) d[1] = sum_to(mul(dy, x), z.shape(), into, 1);
    return d;
  });
}

Tensor operator/(const Tensor& a, const Tensor& b) {
  Tensor y = checked<functors::Div>(a, b);
  return record("div", y, {a, b},
                [y = y.detach(), sa = a.shape(), z = b.detach()](const Tensor& dy, Into& into) {
                  Tensors d(2);
                  Tensor part = div(dy, z);
                  if (into.wanted(0)) d[0] = sum_to(part, sa, into, 0);
                  if (into.wanted(1)) d[1] = -sum_to(mul(part, y), z.shape(), into, 1);
                  return d;
                });
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  check(gate.shape() == up.shape(), "swiglu: shapes {} and {}; expected equal ones", gate.shape(),
        up.shape());
  Tensor y = checked<functors::Swiglu>(gate, up);
  return record("swiglu", y, {gate, up},
                [g = gate.detach(), u = up.detach()](const Tensor& dy, Into& into) {
                  Tensors d(2);
                  if (into.wanted(0)) d[0] = apply<functors::SiluSlope>(g, mul(dy, u));
                  if (into.wanted(1)) d[1] = apply<functors::Swiglu>(g, dy);
                  return d;
                });
}

Tensor operator<(const Tensor& a, const Tensor& b) { return mask<functors::Less>(a, b); }
Tensor operator>(const Tensor& a, const Tensor& b) { return b < a; }
Tensor operator<(const Tensor& a, double b) { return a < scalar(as_float(a), b); }
Tensor operator>(const Tensor& a, double b) { return scalar(as_float(a), b) < a; }
Tensor equal(const Tensor& a, const Tensor& b) { return mask<functors::Equal>(a, b); }
Tensor equal(const Tensor& a, double b) { return equal(a, scalar(as_float(a), b)); }

Tensor operator+(const Tensor& a, double b) { return a + scalar(a, b); }
Tensor operator-(const Tensor& a, double b) { return a - scalar(a, b); }
Tensor operator*(const Tensor& a, double b) {
  if (rounds(a, b))
    return with_number<functors::Mul>(a, b, [b](const Tensor& dy) { return dy * b; });
  return a * scalar(a, b);
}
Tensor operator/(const Tensor& a, double b) {
  if (rounds(a, b))
    return with_number<functors::Div>(a, b, [b](const Tensor& dy) { return dy / b; });
  return a / scalar(a, b);
}
Tensor operator+(double a, const Tensor& b) { return b + a; }
Tensor operator-(double a, const Tensor& b) { return scalar(b, a) - b; }
Tensor operator*(double a, const Tensor& b) { return b * a; }
Tensor operator/(double a, const Tensor& b) {
  if (!rounds(b, a)) return scalar(b, a) / b;
  return cast(a / cast(b, accumulator(b.dtype())), b.dtype());
}

Tensor mse(const Tensor& x, const Tensor& y) {
  autograd::check_float("mse", x);
  autograd::check_same("mse", x, y);
  check(x.shape() == y.shape(), "mse: shapes {} and {}; expected equal ones", x.shape(), y.shape());
  Tensor d = x - y;
  return mean(d * d);
}

}  // namespace triax
