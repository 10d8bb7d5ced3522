#include "triax/core/shared/conv.h"

#include "triax/autograd/ops/common.h"

namespace triax {
namespace {

using autograd::Into;

WindowAxis axis(const char* op, int64_t size, int64_t window, const WindowShape& s, int d) {
  WindowAxis a{size, window, s.stride[d], s.padding[d], s.dilation[d]};
  bool sane = window >= 1 && a.stride >= 1 && a.padding >= 0 && a.dilation >= 1;
  check(sane && size + 2 * a.padding >= a.dilation * (window - 1) + 1,
        "{}: windows of {} at stride {}, padding {}, dilation {} over {} elements; expected each "
        "from 1, padding from 0, and at least one window",
        op, window, a.stride, a.padding, a.dilation, size);
  return a;
}

/// Returns the windows of `op` on x; `stride` is used where `s` has none.
Windows windows_of(const char* op, const Tensor& x, const std::array<int64_t, 2>& window,
                   WindowShape s, const std::array<int64_t, 2>& stride) {
  if (s.stride == std::array<int64_t, 2>{0, 0}) s.stride = stride;
  autograd::check_float(op, x);
  check(x.rank() == 4, "{}: x {}; expected [n, height, width, channels]", op, x.shape());
  return {axis(op, x.size(1), window[0], s, 0), axis(op, x.size(2), window[1], s, 1)};
}

Tensor pool(const char* op, Pool2d::Kind kind, const Tensor& input,
            const std::array<int64_t, 2>& window, const WindowShape& shape) {
  Pool2d p{kind, windows_of(op, input, window, shape, window)};
  const WindowAxis &high = p.windows.high, &wide = p.windows.wide;
  check(2 * high.padding <= window[0] && 2 * wide.padding <= window[1],
        "{}: padding {} and {} of windows {} x {}; expected at most half of them", op, high.padding,
        wide.padding, window[0], window[1]);
  for (auto& a : {high, wide})
    check(a.padding == 0 || a.dilation <= a.size,
          "{}: a window of elements {} apart lies in the padding around {}; expected at least one "
          "element of the image in each",
          op, a.dilation, a.size);
  Tensor x = input.detach().contiguous(), chosen;
  Tensor y = empty({x.size(0), high.count(), wide.count(), x.size(3)}, x.dtype(), x.device());
  if (kind == Pool2d::Kind::max) chosen = empty(y.shape(), i32, x.device());
  backend(x).pool(p, x, y, chosen);
  return record(op, y, {input}, [p, chosen, like = x.shape()](const Tensor& dy) {
    Tensor dx = empty(like, dy.dtype(), dy.device());
    backend(dy).pool_backward(p, dy, chosen, dx);
    return Tensors{dx};
  });
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const ConvShape& shape) {
  check(weight.defined() && weight.rank() == 4,
        "conv2d: weight {}; expected [out, kernel height, kernel width, in / groups]", weight);
  Windows windows =
      windows_of("conv2d", input, {weight.size(1), weight.size(2)}, shape.windows, {1, 1});
  autograd::check_same("conv2d", input, weight);
  int64_t in = input.size(3), groups = shape.groups;
  check(
      groups >= 1 && in == weight.size(3) * groups && weight.size(0) % groups == 0,
      "conv2d: x {} with weight {} in {} groups; expected [n, height, width, in] with [out, kernel "
      "height, kernel width, in / groups], out a multiple of groups",
      input.shape(), weight.shape(), groups);
  Conv2d c{input.detach().contiguous(), weight.detach().contiguous(), windows, groups};
  Tensor y = empty({input.size(0), windows.high.count(), windows.wide.count(), weight.size(0)},
                   input.dtype(), input.device());
  backend(y).conv2d(c, y);
  auto rule = [c](const Tensor& dy, Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    Tensor dx = empty(c.x.shape(), dy.dtype(), dy.device());
    backend(dy).conv2d_backward_input(c, dy, dx);
    return Tensors{dx};
  };
  auto weight_rule = [c](const Tensor& dy, Into& into) {
    if (!into.wanted(0)) return Tensors{{}};
    auto [dw, write] = into.at(0, c.weight.shape(), accumulator(dy.dtype()), dy.device());
    backend(dy).conv2d_backward_weight(c, dy, dw, write);
    return Tensors{dw};
  };
  return record("conv2d", y, {input}, rule, {weight}, weight_rule);
}

Tensor max_pool2d(const Tensor& x, std::array<int64_t, 2> window, const WindowShape& shape) {
  return pool("max_pool2d", Pool2d::Kind::max, x, window, shape);
}

Tensor avg_pool2d(const Tensor& x, std::array<int64_t, 2> window, const WindowShape& shape) {
  return pool("avg_pool2d", Pool2d::Kind::mean, x, window, shape);
}

}  // namespace triax
