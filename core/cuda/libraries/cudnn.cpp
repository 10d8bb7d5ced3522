#include "triax/core/cuda/libraries/cudnn.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <vector>

#include "triax/core/cuda/libraries/cudnn_attention.h"
#include "triax/core/cuda/libraries/cudnn_library.h"
#include "triax/core/shared/attention.h"

// The tensors of attention in cuDNN's words.

namespace triax::cuda {
namespace {

using dnn::AttentionShape, dnn::aligned, dnn::execute, dnn::scratch;
using Pass = AttentionShape::Pass;

/// Makes a plan for a supported shape; null if the library refuses.
std::unique_ptr<dnn::Plan> make(const AttentionShape& s, const dnn::Descriptor& gpu) {
  bool packed = dnn::statistics_packed(s.pass, cudnnGetVersion());
  std::string refusal;
  auto plan = dnn::Plan::make(s.pass == Pass::forward ? dnn::attention_forward(s, packed)
                                                      : dnn::attention_backward(s, packed),
                              gpu, refusal);
  if (!plan)
    dnn::say_refused("attention",
                     fmt::format("{} heads of {}, {} tokens,", s.heads, s.head_dim, s.time),
                     refusal);
  return plan;
}

/// True if it is one of the forms of dnn::AttentionShape.
bool has_graph(const Attention& a) {
  bool causal = a.band.end(0) < a.band.keys;
  bool windowed = a.band.begin(a.time - 1) > 0;
  return a.group() == 1 && !windowed && (!causal || a.time == a.band.keys);
}

/// True if cuDNN may compute it; `tensors`: all that have rows of heads.
bool usable(const Attention& a, const Tensor& lse, const std::vector<Tensor>& tensors) {
  const Tensor& q = a.in.q;
  if (q.dtype() != f16 && q.dtype() != bf16) return false;
  if (dnn::switched_off() || a.mask.p > 0 || q.numel() == 0 || !has_graph(a)) return false;
  if (!aligned(lse)) return false;
  for (const Tensor& x : tensors) {
    if (!aligned(x)) return false;
    if (x.size(0) * x.strides()[0] > std::numeric_limits<int32_t>::max()) return false;
    for (int d = 0; d < x.rank() - 1; ++d)
      if (x.strides()[d] % 8 != 0) return false;
  }
  return true;
}

dnn::RowStrides strides_of(const Tensor& x) { return {x.strides()[0], x.strides()[1]}; }

AttentionShape shape_of(const Attention& a, Pass pass) {
  return {.batch = a.sequences(),
          .heads = a.heads(),
          .time = a.time,
          .keys = a.band.keys,
          .head_dim = a.head_dim(),
          .causal = a.band.end(0) < a.band.keys,
          .type = a.in.q.dtype() == f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
          .pass = pass,
          .q = strides_of(a.in.q),
          .k = strides_of(a.in.k),
          .v = strides_of(a.in.v)};
}

/// Adds queries under `id`, keys and values under those after it.
void add_qkv(const Qkv& x, int64_t id, std::vector<dnn::Place>& places) {
  for (const Tensor* each : {&x.q, &x.k, &x.v}) places.push_back({id++, each->data()});
}

/// Values that the library reads from host memory when an execution begins.
struct Constants {
  float scale, masked = -std::numeric_limits<float>::infinity(), one = 1;
};

/// Returns the library's [batch, heads, time] as a view [batch, time, heads]: [tokens, heads].
Tensor turned(const Tensor& statistics) { return statistics.transpose(1, 2); }
Tensor by_sequence(const Tensor& lse, const AttentionShape& s) {
  return lse.view({s.batch, s.time, s.heads});
}

}  // namespace

namespace TRIAX_TARGET {

bool fused_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  if (!usable(a, lse, {a.in.q, a.in.k, a.in.v, y})) return false;
  Device device = y.device();
  AttentionShape shape = shape_of(a, Pass::forward);
  if (!dnn::is_supported(shape, cudnnGetVersion())) return false;  // no plan is kept for it
  const dnn::Plan* plan = dnn::plan_of(shape, device, make);
  if (!plan) return false;

  bool packed = dnn::statistics_packed(shape.pass, cudnnGetVersion());
  Tensor statistics = packed ? scratch({shape.batch, shape.heads, shape.time}, f32, device) : lse;
  Constants constants{1 / std::sqrt(float(a.head_dim()))};
  std::vector<dnn::Place> places{{dnn::output, y.data()},
                                 {dnn::lse, statistics.data()},
                                 {dnn::scale, &constants.scale},
                                 {dnn::masked, &constants.masked}};
  add_qkv(a.in, dnn::query, places);
  execute(*plan, device, places);
  if (packed) backend(device).copy(turned(statistics), by_sequence(lse, shape));
  return true;
}

bool fused_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                              const Tensor& dy, const Qkv& d) {
  if (!usable(a, lse, {a.in.q, a.in.k, a.in.v, y, dy, d.q, d.k, d.v})) return false;
  Device device = y.device();
  AttentionShape shape =
      shape_of(a, dnn::deterministic() ? Pass::deterministic_backward : Pass::backward);
  shape.dq = strides_of(d.q), shape.dk = strides_of(d.k), shape.dv = strides_of(d.v);
  if (!dnn::is_supported(shape, cudnnGetVersion())) return false;  // no plan is kept for it
  const dnn::Plan* plan = dnn::plan_of(shape, device, make);
  if (!plan) return false;

  Shape per_row{shape.batch, shape.heads, shape.time};
  Tensor statistics = lse, delta = scratch(per_row, f32, device), dq_sum;
  if (dnn::statistics_packed(shape.pass, cudnnGetVersion())) {
    statistics = scratch(per_row, f32, device);
    backend(device).copy(by_sequence(lse, shape), turned(statistics));
  }
  Constants constants{1 / std::sqrt(float(a.head_dim()))};
  std::vector<dnn::Place> places{{dnn::output, y.data()},         {dnn::doutput, dy.data()},
                                 {dnn::lse, statistics.data()},   {dnn::delta, delta.data()},
                                 {dnn::scale, &constants.scale},  {dnn::one, &constants.one},
                                 {dnn::masked, &constants.masked}};
  if (shape.pass == Pass::backward) {
    dq_sum = scratch({shape.batch, shape.heads, shape.time, shape.head_dim}, f32, device);
    places.push_back({dnn::dquery_sum, dq_sum.data()});
  }
  add_qkv(a.in, dnn::query, places);
  add_qkv(d, dnn::dquery, places);
  execute(*plan, device, places);
  return true;
}

}  // namespace TRIAX_TARGET
}  // namespace triax::cuda
