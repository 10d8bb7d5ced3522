#include "triax/core/cuda/libraries/cudnn_graph.h"

#include <utility>

namespace triax::cuda::dnn {
namespace {

Sizes packed_strides(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t d = sizes.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

Sizes swap_last(Sizes s) {
  std::swap(s[2], s[3]);
  return s;
}

}  // namespace

Value Graph::argument(int64_t id, const Sizes& sizes, const Sizes& strides, cudnnDataType_t type) {
  return tensor(id, {nullptr, sizes, strides}, type, /*temporary=*/false, /*by_value=*/false);
}
Value Graph::scalar(int64_t id) {
  return tensor(id, {nullptr, {1, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_FLOAT, /*temporary=*/false,
                /*by_value=*/true);
}
Value Graph::temporary(const Sizes& sizes, cudnnDataType_t type) {
  return tensor(next_id_++, {nullptr, sizes, packed_strides(sizes)}, type, /*temporary=*/true,
                /*by_value=*/false);
}

Value Graph::temporary_like(const Value& x) {
  return tensor(next_id_++, {nullptr, x.sizes, x.strides}, CUDNN_DATA_FLOAT, /*temporary=*/true,
                /*by_value=*/false);
}

Value Graph::tensor(int64_t id, Value shape, cudnnDataType_t type, bool temporary, bool by_value) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(shape.sizes));
  d.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(shape.strides));
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, temporary);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
  d.finalize();
  shape.tensor = &keep(std::move(d));
  return shape;
}

const Descriptor& Graph::keep(Descriptor d) {
  return *kept_.emplace_back(std::make_unique<Descriptor>(std::move(d)));
}

Value Graph::matmul(const Value& a, const Value& b) {
  Value c = temporary({a.sizes[0], a.sizes[1], a.sizes[2], b.sizes[3]});
  matmul(a, b, c);
  return c;
}
void Graph::matmul(const Value& a, const Value& b, const Value& c) {
  Descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.refer(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.tensor);
  op.refer(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.tensor);
  op.refer(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c.tensor);
  op.refer(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(how)));
  op.finalize();
  ops_.push_back(std::move(op));
}

void Graph::add(const Pointwise& p) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, p.mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, p.computed_in);
  if (p.axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, p.axis);
  how.finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.refer(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
  op.refer(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *p.x.tensor);
  if (p.b) op.refer(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *p.b->tensor);
  if (p.condition) op.refer(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *p.condition->tensor);
  op.refer(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *p.y.tensor);
  op.finalize();
  ops_.push_back(std::move(op));
}
Value Graph::pointwise(cudnnPointwiseMode_t mode, const Value& x) {
  Value y = temporary(x.sizes);
  add({.mode = mode, .x = x, .y = y});
  return y;
}
Value Graph::pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value& b) {
  Value y = temporary(x.sizes);
  add({.mode = mode, .x = x, .b = &b, .y = y});
  return y;
}

Value Graph::lower_triangle(const Value& x, const Value& masked) {
  Value row = temporary(x.sizes, CUDNN_DATA_INT32), column = temporary(x.sizes, CUDNN_DATA_INT32);
  Value seen = temporary(x.sizes, CUDNN_DATA_BOOLEAN), y = temporary(x.sizes);
  add({.mode = CUDNN_POINTWISE_GEN_INDEX, .x = x, .y = row, .axis = 2});
  add({.mode = CUDNN_POINTWISE_GEN_INDEX, .x = x, .y = column, .axis = 3});
  add({.mode = CUDNN_POINTWISE_CMP_GE,
       .x = row,
       .b = &column,
       .y = seen,
       .computed_in = CUDNN_DATA_BOOLEAN});
  add({.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = x, .b = &masked, .condition = &seen, .y = y});
  return y;
}

Value Graph::reduce(cudnnReduceTensorOp_t op, const Value& x) {
  Value y = temporary({x.sizes[0], x.sizes[1], x.sizes[2], 1});
  Descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, op);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Descriptor reduction(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  reduction.refer(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.tensor);
  reduction.refer(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y.tensor);
  reduction.refer(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(how)));
  reduction.finalize();
  ops_.push_back(std::move(reduction));
  return y;
}

Value Graph::transpose(const Value& x, cudnnDataType_t type) {
  Value shape{nullptr, swap_last(x.sizes), swap_last(x.strides)};
  Value y = tensor(next_id_++, shape, type, /*temporary=*/true, /*by_value=*/false);
  Descriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.refer(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.tensor);
  op.refer(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y.tensor);
  op.finalize();
  ops_.push_back(std::move(op));
  return y;
}

}  // namespace triax::cuda::dnn
