#pragma once
#include <compare>

#include "triax/core/cuda/libraries/cudnn_graph.h"
#include "triax/core/shared/conv.h"

namespace triax::cuda::dnn {

/// The key of a plan for a convolution. Images and weights lie in memory with channels last.
struct ConvolutionShape {
  Convolution::Pass pass;
  Sizes x, weight, y;                                          // (batch, channel, row, column)
  Sizes stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};  // (row, column)
  cudnnDataType_t type;                                        // float, half or bfloat16
  bool deterministic = true;
  auto operator<=>(const ConvolutionShape&) const = default;
};

/// Returns the shape of a convolution; all float dtypes but f64. The tensors need no memory.
ConvolutionShape shape_of(const Conv2d& c, Convolution::Pass pass);

/// The ids of arguments, all in memory: images and their convolution, or the gradients of these.
/// The gradient of the weight is f32, everything else of the shape's type.
enum ConvolutionArgument : int64_t { images = 1, filters, maps };

/// True if the library is to be asked for `shape`. It has no f32 gradient of f16 and bf16 weights
/// in groups; with few channels it has wrong ones, so their number has to be a multiple of 8.
bool is_supported(const ConvolutionShape& shape);

/// A convolution or one of its gradients, summed in f32: by engines that convert nothing to a
/// lower precision (f32 without TF32) nor transform images (Winograd, FFT), which costs digits.
Graph convolution(const ConvolutionShape& shape);

}  // namespace triax::cuda::dnn
