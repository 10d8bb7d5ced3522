#include <algorithm>
#include <numeric>
#include <utility>

#include "triax/autograd/ops/common.h"

namespace triax {

// Views share bytes with their input, so their gradients are views too, or are laid into zeros.

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  return record("transpose", x.detach().transpose(dim0, dim1), {x},
                [=](const Tensor& dy) { return Tensors{dy.transpose(dim0, dim1)}; });
}

Tensor permute(const Tensor& x, const Dims& order) {
  int rank = x.rank();
  Dims now(size_t(rank), 0), wanted = order;  // now[i]: which dim of x is at i
  std::iota(now.begin(), now.end(), 0);
  for (int& dim : wanted) dim += dim < 0 ? rank : 0;
  check(std::ranges::is_permutation(wanted, now),
        "permute: order [{}] of {}; expected each of {} dims once", join(order, ", "), x, rank);
  Tensor y = x;
  for (int i = 0; i < rank; ++i) {
    int from = int(std::ranges::find(now, wanted[size_t(i)]) - now.begin());
    if (from == i) continue;
    y = transpose(y, i, from);
    std::swap(now[size_t(i)], now[size_t(from)]);
  }
  return y;
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  return record("contiguous", x.detach().contiguous(), {x},
                [](const Tensor& dy) { return Tensors{dy}; });
}

Tensor view(const Tensor& x, const Shape& shape) {
  return record("view", x.detach().view(shape), {x},
                [s = x.shape()](const Tensor& dy) { return Tensors{dy.view(s)}; });
}

Tensor reshape(const Tensor& x, const Shape& shape) { return view(contiguous(x), shape); }

Tensor narrow(const Tensor& x, int dim, int64_t begin, int64_t length) {
  Tensor y = x.detach().narrow(dim, begin, length);
  return record("narrow", y, {x},
                [=, s = x.shape(), dtype = x.dtype(), device = x.device()](const Tensor& dy,
                                                                           autograd::Into& into) {
                  auto [dx, write] = into.at(0, s, dtype, device);
                  if (write == Write::set) fill_(dx, 0);
                  Tensor part = dx.narrow(dim, begin, length);  // the others add theirs to dx, too
                  if (write == Write::set) copy_(part, dy);
                  else copy_(part, part + dy);
                  return Tensors{dx};
                });
}

Tensors split(const Tensor& x, int dim, const std::vector<int64_t>& lengths) {
  int64_t at = 0;
  Tensors parts;
  for (int64_t n : lengths) {
    parts.push_back(narrow(x, dim, at, n));
    at += n;
  }
  check(at == x.size(dim), "split: lengths {} of dim {} of {}; expected a sum of {}",
        join(lengths, ", "), dim, x, x.size(dim));
  return parts;
}

Tensor expand(const Tensor& x, const Shape& shape) {
  return record("expand", x.detach().expand(shape), {x},
                [s = x.shape()](const Tensor& dy, autograd::Into& into) {
                  return Tensors{autograd::sum_to(dy, s, into, 0)};
                });
}

Tensor concat(const Tensors& xs, int dim) {
  check(!xs.empty(), "concat: no tensors; expected at least one");
  Shape shape = xs[0].shape();
  dim = shape.index(dim);
  shape[dim] = 0;
  for (auto& x : xs) {
    autograd::check_float("concat", x);
    autograd::check_same("concat", xs[0], x);
    Shape like = x.shape();
    check(like.rank() == shape.rank(), "concat: {} beside {}; expected one rank", like,
          xs[0].shape());
    int64_t length = like[dim];
    like[dim] = shape[dim];
    check(like == shape, "concat: {} beside {}; sizes may differ in dim {} only", x.shape(),
          xs[0].shape(), dim);
    shape[dim] += length;
  }
  Tensor y = empty(shape, xs[0].dtype(), xs[0].device());
  std::vector<int64_t> lengths;
  int64_t at = 0;
  for (auto& x : xs) {
    lengths.push_back(x.size(dim));
    copy_(y.narrow(dim, at, lengths.back()), x.detach());
    at += lengths.back();
  }
  return record("concat", y, xs, [=](const Tensor& dy) { return split(dy, dim, lengths); });
}

Tensor stack(const Tensors& xs, int dim) {
  check(!xs.empty(), "stack: no tensors; expected at least one");
  int rank = xs[0].rank() + 1, at = dim < 0 ? dim + rank : dim;
  check(at >= 0 && at < rank, "stack: dim {} for tensors of shape {}; expected {} to {}", dim,
        xs[0].shape(), -rank, rank - 1);
  Tensors thick;
  for (auto& x : xs) {
    Shape s = x.shape();
    s.insert(at, 1);
    thick.push_back(reshape(x, s));
  }
  return concat(thick, at);
}

Tensor cast(const Tensor& x, DType dtype) {
  check(x.defined(), "cast: {}; expected a tensor", x);
  check(is_float(dtype), "cast: to {}; expected a float dtype", dtype);
  if (!is_float(x.dtype())) return x.to(dtype);
  Tensor y = empty(x.shape(), dtype, x.device());
  copy_(y, x.detach());
  return record("cast", y, {x},
                [from = x.dtype()](const Tensor& dy) { return Tensors{dy.to(from)}; });
}

Tensor move_to(const Tensor& x, Device device) {
  check(x.defined(), "move_to: {}; expected a tensor", x);
  if (x.device() == device) return x;
  return record("move_to", x.detach().to(device), {x},
                [from = x.device()](const Tensor& dy) { return Tensors{dy.to(from)}; });
}

}  // namespace triax
