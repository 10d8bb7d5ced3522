#include "triax/core/cuda/libraries/cudnn_conv.h"

namespace triax::cuda::dnn {
namespace {

using Pass = Convolution::Pass;

Sizes channels_last(const Sizes& s) { return {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]}; }

/// The names that a pass has for the same things.
struct Names {
  cudnnBackendDescriptorType_t op;
  cudnnBackendAttributeName_t how, x, weight, y, alpha, beta;
};

Names names_of(Pass pass) {
  if (pass == Pass::forward)
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  if (pass == Pass::input_gradient)
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

std::vector<cudnnBackendNumericalNote_t> avoided(const ConvolutionShape& s) {
  std::vector notes{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
                    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT,
                    CUDNN_NUMERICAL_NOTE_WINOGRAD};
  if (s.type == CUDNN_DATA_FLOAT) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (s.deterministic) notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  return notes;
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == f32 ? CUDNN_DATA_FLOAT : dtype == f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/// Returns [first, height, width, channels] in the library's order of dims.
Sizes sizes_of(const Tensor& x) { return {x.size(0), x.size(3), x.size(1), x.size(2)}; }

}  // namespace

ConvolutionShape shape_of(const Conv2d& c, Pass pass) {
  const WindowAxis &high = c.windows.high, &wide = c.windows.wide;
  return {.pass = pass,
          .x = sizes_of(c.x),
          .weight = sizes_of(c.weight),
          .y = {c.x.size(0), c.weight.size(0), high.count(), wide.count()},
          .stride = {high.stride, wide.stride},
          .padding = {high.padding, wide.padding},
          .dilation = {high.dilation, wide.dilation},
          .type = type_of(c.x.dtype())};
}

void Graph::add(const Convolution& c) {
  Descriptor how(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  how.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  how.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span(c.stride));
  how.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span(c.padding));
  how.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span(c.padding));
  how.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span(c.dilation)).finalize();
  Names names = names_of(c.pass);
  Descriptor op(names.op);
  op.refer(names.how, keep(std::move(how)));
  op.refer(names.x, *c.x.tensor).refer(names.weight, *c.weight.tensor).refer(names.y, *c.y.tensor);
  op.set(names.alpha, 1.0f).set(names.beta, 0.0f).finalize();
  ops_.push_back(std::move(op));
}

bool is_supported(const ConvolutionShape& s) {
  // Of two channels and a dilation 9.14 sums wrong elements (seen on an H100). Tests pass on GPUs
  // with whole packs of 16 bytes; what lies between has not been tried.
  constexpr int64_t whole_packs = 8;
  bool sums_of_halves = s.pass == Pass::weight_gradient && s.type != CUDNN_DATA_FLOAT;
  bool one_group = s.x[1] == s.weight[1];
  return !sums_of_halves || (one_group && s.x[1] % whole_packs == 0 && s.y[1] % whole_packs == 0);
}

Graph convolution(const ConvolutionShape& s) {
  Graph g;
  g.avoid(avoided(s));
  bool to_weight = s.pass == Pass::weight_gradient;
  Value x = g.argument(images, s.x, channels_last(s.x), s.type);
  Value y = g.argument(maps, s.y, channels_last(s.y), s.type);
  Value weight =
      g.argument(filters, s.weight, channels_last(s.weight), to_weight ? CUDNN_DATA_FLOAT : s.type);
  // No engine for this op alone stores sums of f16 and bf16 unrounded. Followed by another op they
  // are an f32 temporary, which the library's compiled kernels store as it is.
  bool through_sums = to_weight && s.type != CUDNN_DATA_FLOAT;
  Value written = through_sums ? g.temporary_like(weight) : weight;
  g.add({.pass = s.pass,
         .x = x,
         .weight = written,
         .y = y,
         .stride = s.stride,
         .padding = s.padding,
         .dilation = s.dilation});
  if (through_sums) g.add({.mode = CUDNN_POINTWISE_IDENTITY, .x = written, .y = weight});
  return g;
}

}  // namespace triax::cuda::dnn
