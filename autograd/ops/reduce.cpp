#include "triax/autograd/ops/common.h"
#include "triax/core/functors/binary.h"

namespace triax {
namespace {

/// The shape of x with the reduced dims as 1, and without them.
struct Reduced {
  Shape kept, gone;
};

Reduced reduced(const char* op, const Tensor& x, const Dims& dims) {
  autograd::check_float(op, x);
  bool reduce[Shape::max_rank] = {};
  for (int d : dims) {
    int i = x.shape().index(d);
    check(!reduce[i], "{}: dim {} of {} is named twice", op, d, x.shape());
    reduce[i] = true;
  }
  Reduced r;
  for (int d = 0; d < x.rank(); ++d) {
    bool here = dims.empty() || reduce[d];
    r.kept.push_back(here ? 1 : x.size(d));
    if (!here) r.gone.push_back(x.size(d));
  }
  return r;
}

Tensor stretched(const Tensor& dy, const Shape& kept, const Shape& shape) {
  return dy.view(kept).expand(shape);
}

/// Returns the sums without history, in x's dtype or its accumulator's.
Tensor sums(const Tensor& x, const Shape& kept, DType dtype) {
  Tensor y = empty(kept, dtype, x.device());
  backend(x).sum(x.detach().contiguous(), y, Write::set);
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, Keep keep) {
  Reduced r = reduced("sum", x, dims);
  Tensor y = sums(x, r.kept, x.dtype());
  return record("sum", keep == Keep::yes ? y : y.view(r.gone), {x},
                [kept = r.kept, shape = x.shape()](const Tensor& dy) {
                  return Tensors{stretched(dy, kept, shape).contiguous()};
                });
}

Tensor mean(const Tensor& x, const Dims& dims, Keep keep) {
  Reduced r = reduced("mean", x, dims);
  check(x.numel() > 0, "mean: {} has no elements", x);
  double count = double(x.numel()) / double(r.kept.numel());
  DType wide = accumulator(x.dtype());
  if (x.dtype() == wide) return sum(x, dims, keep) * (1 / count);
  Tensor y = (sums(x, r.kept, wide) / count).to(x.dtype());
  return record("mean", keep == Keep::yes ? y : y.view(r.gone), {x},
                [kept = r.kept, shape = x.shape(), count](const Tensor& dy) {
                  return Tensors{stretched(dy / count, kept, shape).contiguous()};
                });
}

Tensor max(const Tensor& x, const Dims& dims, Keep keep) {
  Reduced r = reduced("max", x, dims);
  check(x.numel() > 0, "max: {} has no elements", x);
  Tensor from = x.detach().contiguous(), y = empty(r.kept, x.dtype(), x.device());
  backend(x).max(from, y);
  auto rule = [from, top = y.detach(), kept = r.kept](const Tensor& dy) {
    Tensor equal = empty(from.shape(), from.dtype(), from.device());
    backend(from).binary(binary_id<functors::Equal>(), from, top.expand(from.shape()), equal);
    Tensor share = dy.view(kept) / autograd::sum_to(equal, kept);
    return Tensors{equal * share};
  };
  return record("max", keep == Keep::yes ? y : y.view(r.gone), {x}, rule);
}

}  // namespace triax
