#include "triax/core/cuda/libraries/cudnn_attention.h"

namespace triax::cuda::dnn {
namespace {

using Pass = AttentionShape::Pass;

/// The sizes and strides of all tensors, as (batch, head, row, column).
struct Layout {
  explicit Layout(const AttentionShape& s, bool packed_statistics)
      : type(s.type),
        rows{s.batch, s.heads, s.time, s.head_dim},
        per_row{s.batch, s.heads, s.time, 1},
        of_keys{s.batch, s.heads, s.keys, s.head_dim},
        turned_keys{s.batch, s.heads, s.head_dim, s.keys},
        in_y{s.time * s.heads * s.head_dim, s.head_dim, s.heads * s.head_dim, 1},
        packed{s.heads * s.time * s.head_dim, s.time * s.head_dim, s.head_dim, 1},
        packed_per_row{s.heads * s.time, s.time, 1, 1},
        in_lse{packed_statistics ? packed_per_row : Sizes{s.time * s.heads, 1, s.heads, 1}} {}
  cudnnDataType_t type;
  Sizes rows, per_row, of_keys, turned_keys;  // sizes
  Sizes in_y, packed, packed_per_row, in_lse;
};

Sizes strides(const RowStrides& s, int64_t length) {
  return {length * s.token, s.head, s.token, 1};
}
Sizes turned(const RowStrides& s, int64_t length) { return {length * s.token, s.head, 1, s.token}; }

/// Sets scores that are not seen to `masked`.
Value hide(Graph& g, const AttentionShape& s, const Value& scores) {
  return s.causal ? g.lower_triangle(scores, g.scalar(masked)) : scores;
}

}  // namespace

bool statistics_packed(Pass pass, size_t version) {
  return version < (pass == Pass::forward ? 91200 : 92600);
}

bool is_supported(const AttentionShape& s, size_t version) {
  if (version < 91002 || version >= 100000) return false;
  if (s.head_dim % 8 != 0 || s.head_dim > 256) return false;
  if (s.time % 64 != 0 || s.keys % 64 != 0) return false;
  bool whole = s.time % 128 == 0 && s.keys % 128 == 0;
  return s.pass == Pass::forward || whole || version > 91500;
}

Graph attention_forward(const AttentionShape& shape, bool packed_statistics) {
  Graph g;
  Layout at(shape, packed_statistics);
  Value q = g.argument(query, at.rows, strides(shape.q, shape.time), at.type);
  Value kT = g.argument(key, at.turned_keys, turned(shape.k, shape.keys), at.type);
  Value v = g.argument(value, at.of_keys, strides(shape.v, shape.keys), at.type);
  Value y = g.argument(output, at.rows, at.in_y, at.type);
  Value statistics = g.argument(lse, at.per_row, at.in_lse, CUDNN_DATA_FLOAT);

  Value scores = g.pointwise(CUDNN_POINTWISE_MUL, g.matmul(q, kT), g.scalar(scale));
  scores = hide(g, shape, scores);
  Value largest = g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores);
  Value weights = g.pointwise(CUDNN_POINTWISE_SUB, scores, largest);
  weights = g.pointwise(CUDNN_POINTWISE_EXP, weights);
  Value sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, weights);
  Value log = g.pointwise(CUDNN_POINTWISE_LOG, sum);
  g.add({.mode = CUDNN_POINTWISE_ADD, .x = largest, .b = &log, .y = statistics});
  Value p = g.temporary(weights.sizes, at.type);
  g.add({.mode = CUDNN_POINTWISE_DIV, .x = weights, .b = &sum, .y = p});
  g.matmul(p, v, y);
  return g;
}

Graph attention_backward(const AttentionShape& shape, bool packed_statistics) {
  Graph g;
  Layout at(shape, packed_statistics);
  Value q = g.argument(query, at.rows, strides(shape.q, shape.time), at.type);
  Value kT = g.argument(key, at.turned_keys, turned(shape.k, shape.keys), at.type);
  Value vT = g.argument(value, at.turned_keys, turned(shape.v, shape.keys), at.type);
  Value y = g.argument(output, at.rows, at.in_y, at.type);
  Value dy = g.argument(doutput, at.rows, at.in_y, at.type);
  Value statistics = g.argument(lse, at.per_row, at.in_lse, CUDNN_DATA_FLOAT);
  Value dq = g.argument(dquery, at.rows, strides(shape.dq, shape.time), at.type);
  Value dk = g.argument(dkey, at.of_keys, strides(shape.dk, shape.keys), at.type);
  Value dv = g.argument(dvalue, at.of_keys, strides(shape.dv, shape.keys), at.type);
  Value by_scale = g.scalar(scale), by_one = g.scalar(one);

  // rowsum(dy * y), stored for all blocks of keys
  Value products = g.pointwise(CUDNN_POINTWISE_MUL, dy, y);
  Value sums = g.reduce(CUDNN_REDUCE_TENSOR_ADD, products);
  Value row_sums = g.argument(delta, at.per_row, at.packed_per_row, CUDNN_DATA_FLOAT);
  g.add({.mode = CUDNN_POINTWISE_MUL, .x = sums, .b = &by_one, .y = row_sums});

  // p = exp(scale q k^T - lse), dv = p^T dy
  Value scores = g.pointwise(CUDNN_POINTWISE_MUL, g.matmul(q, kT), by_scale);
  scores = g.pointwise(CUDNN_POINTWISE_SUB, scores, statistics);
  scores = hide(g, shape, scores);
  Value p = g.pointwise(CUDNN_POINTWISE_EXP, scores);
  g.matmul(g.transpose(p, at.type), dy, dv);

  // ds = scale p (dy v^T - delta), dk = ds^T q, dq = ds k
  Value dp = g.pointwise(CUDNN_POINTWISE_SUB, g.matmul(dy, vT), row_sums);
  Value ds = g.pointwise(CUDNN_POINTWISE_MUL, g.pointwise(CUDNN_POINTWISE_MUL, dp, p), by_scale);
  g.matmul(g.transpose(ds, at.type), q, dk);
  Value k = g.transpose(kT, at.type);
  if (shape.pass == Pass::deterministic_backward) {
    g.matmul(ds, k, dq);
  } else {
    Value dq_sum = g.argument(dquery_sum, at.rows, at.packed, CUDNN_DATA_FLOAT);
    g.matmul(ds, k, dq_sum);
    g.add({.mode = CUDNN_POINTWISE_IDENTITY, .x = dq_sum, .y = dq});
  }
  return g;
}

}  // namespace triax::cuda::dnn
