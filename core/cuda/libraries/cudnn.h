#pragma once
#include "triax/core/backend.h"

// The one place that knows cuDNN. Without the library the functions of cudnn_absent.cpp stand here.
namespace triax::cuda::TRIAX_TARGET {

/// Computes Backend::attention by cuDNN's fused kernels. Returns false, having done nothing, for
/// dtypes other than f16 and bf16, grouped queries, windows, causal with more keys than queries,
/// head_dim no multiple of 8 or above 256, lengths no multiple of 64 (of 128 for the backward, up
/// to version 9.15), a mask that drops weights, 2^31 elements or more, rows that do not begin at
/// multiples of 16 bytes, a version before 9.10.2, whatever the library refuses, and everything if
/// the environment has TRIAX_CUDNN=0. Plans are compiled once per shape and GPU.
bool fused_attention(const Attention& a, const Tensor& y, const Tensor& lse);

/// Computes Backend::attention_backward likewise, whoever made y and lse. With GpuBits::repeat
/// (core/gpus.h) it needs 2 bytes of workspace for every pair of tokens of a sequence and head.
bool fused_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                              const Tensor& dy, const Qkv& d);

/// Computes Backend::conv2d by cuDNN (below: its gradients), with sums in f32, in f32 without TF32.
/// Returns false, having done nothing, for f64, tensors that are empty, have 2^31 elements or more
/// or do not begin at multiples of 16 bytes, gradients of f16 and bf16 weights in groups or with an
/// odd number of channels, whatever the library refuses, and everything if the environment has
/// TRIAX_CUDNN=0. With GpuBits::repeat no engine is used that adds by atomics.
bool cudnn_conv2d(const Conv2d& c, const Tensor& y);
bool cudnn_conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx);
bool cudnn_conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw, Write write);

}  // namespace triax::cuda::TRIAX_TARGET
