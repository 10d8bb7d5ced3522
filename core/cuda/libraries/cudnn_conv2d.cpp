#include <fmt/ranges.h>

#include <limits>

#include "triax/core/cuda/libraries/cudnn.h"
#include "triax/core/cuda/libraries/cudnn_conv.h"
#include "triax/core/cuda/libraries/cudnn_library.h"

// The tensors of a convolution in cuDNN's words.

namespace triax::cuda {
namespace {

using Pass = dnn::Convolution::Pass;

bool usable(const Conv2d& c, std::initializer_list<Tensor> tensors) {
  DType dtype = c.x.dtype();
  if (dnn::switched_off() || (dtype != f32 && dtype != f16 && dtype != bf16)) return false;
  for (const Tensor& x : tensors) {
    if (!dnn::aligned(x) || !x.is_contiguous()) return false;
    if (x.numel() == 0 || x.numel() > std::numeric_limits<int32_t>::max()) return false;
  }
  return true;
}

/// Makes a plan for a supported shape; null if the library refuses.
std::unique_ptr<dnn::Plan> make(const dnn::ConvolutionShape& s, const dnn::Descriptor& gpu) {
  std::string refusal;
  auto plan = dnn::Plan::make(convolution(s), gpu, refusal);
  if (!plan) dnn::say_refused("convolution", fmt::format("{} by {}", s.x, s.weight), refusal);
  return plan;
}

/// The tensors that a pass reads and writes.
struct Operands {
  const Tensor &x, &weight, &y;
};

bool run(const Conv2d& c, Pass pass, const Operands& on) {
  if (!usable(c, {on.x, on.weight, on.y})) return false;
  dnn::ConvolutionShape shape = dnn::shape_of(c, pass);
  shape.deterministic = dnn::deterministic();
  if (!is_supported(shape)) return false;
  const dnn::Plan* plan = dnn::plan_of(shape, c.x.device(), make);
  if (!plan) return false;
  dnn::Place places[] = {
      {dnn::images, on.x.data()}, {dnn::filters, on.weight.data()}, {dnn::maps, on.y.data()}};
  dnn::execute(*plan, c.x.device(), places);
  return true;
}

}  // namespace

namespace TRIAX_TARGET {

bool cudnn_conv2d(const Conv2d& c, const Tensor& y) {
  return run(c, Pass::forward, {c.x, c.weight, y});
}

bool cudnn_conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) {
  return run(c, Pass::input_gradient, {dx, c.weight, dy});
}

bool cudnn_conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                                  Write write) {
  if (write == Write::set) return run(c, Pass::weight_gradient, {c.x, dw, dy});
  Tensor sums = dnn::scratch(dw.shape(), dw.dtype(), dw.device());
  if (!run(c, Pass::weight_gradient, {c.x, sums, dy})) return false;
  backend(dw.device()).accumulate(sums, dw);
  return true;
}

}  // namespace TRIAX_TARGET
}  // namespace triax::cuda
