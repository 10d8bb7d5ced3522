#include "core/cuda/cudnn.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/attention.h"
#include "core/cuda/context.h"
#include "core/cuda/cudnn_attention.h"
#include "core/cuda/devices.h"
#include "core/own_counter.h"

namespace triax::cuda {
namespace {

using dnn::AttentionShape;
using Pass = AttentionShape::Pass;

struct DestroyHandle {
  void operator()(cudnnHandle_t handle) const noexcept { cudnnDestroy(handle); }
};

/// What one thread has of the library on one GPU.
class Library {
 public:
  Library() {
    cudnnHandle_t handle = nullptr;
    dnn::require(cudnnCreate(&handle), "cudnnCreate");
    handle_.reset(handle);
  }
  /// Its work is queued on `stream`.
  cudnnHandle_t on(cudaStream_t stream) {
    if (stream != stream_) dnn::require(cudnnSetStream(handle_.get(), stream), "cudnnSetStream");
    stream_ = stream;
    return handle_.get();
  }
  /// Null if the library refuses, which it is asked only once.
  const dnn::Plan* plan(const AttentionShape& shape) {
    constexpr size_t kept = 256;
    auto found = plans_.find(shape);
    if (found != plans_.end()) return found->second.get();
    if (plans_.size() >= kept) plans_.clear();
    return plans_.emplace(shape, make(shape)).first->second.get();
  }

 private:
  static std::unique_ptr<dnn::Plan> make(const AttentionShape& shape) {
    size_t version = cudnnGetVersion();
    if (!dnn::is_supported(shape, version)) return nullptr;
    bool packed = dnn::statistics_packed(shape.pass, version);
    std::string refusal;
    auto plan =
        dnn::Plan::make(shape.pass == Pass::forward ? dnn::attention_forward(shape, packed)
                                                    : dnn::attention_backward(shape, packed),
                        /*gpu=*/nullptr, refusal);
    if (!plan) say(shape, refusal);
    return plan;
  }
  /// Once in a process: what follows is slower than it looks.
  static void say(const AttentionShape& s, const std::string& refusal) {
    static std::once_flag said;
    std::call_once(said, [&] {
      fmt::print(stderr,
                 "triax: attention of {} heads of {}, {} tokens, is left to triax's own kernels: "
                 "cuDNN refuses it: {}\n",
                 s.heads, s.head_dim, s.time, refusal);
    });
  }

  std::unique_ptr<cudnnContext, DestroyHandle> handle_;
  cudaStream_t stream_ = nullptr;  // the one that a new handle has
  std::map<AttentionShape, std::unique_ptr<dnn::Plan>> plans_;
};

/// After context(): its streams outlive the handles.
Library& library(int device) {
  thread_local std::map<int, Library> all;
  return all[device];
}

bool environment_says(const char* variable, std::string_view value) {
  const char* text = std::getenv(variable);
  return text && text == value;
}
bool deterministic() { return bits() == GpuBits::repeat; }
bool switched_off() {
  static const bool off = environment_says("TRIAX_CUDNN", "0");
  return off;
}

/// Is it one of the forms of dnn::AttentionShape?
bool has_graph(const Attention& a) {
  bool causal = a.band.end(0) < a.band.keys;
  bool windowed = a.band.begin(a.time - 1) > 0;
  return a.group() == 1 && !windowed && (!causal || a.time == a.band.keys);
}

bool aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data()) % 16 == 0; }

/// `tensors`: all that have rows of heads.
bool usable(const Attention& a, const Tensor& lse, const std::vector<Tensor>& tensors) {
  const Tensor& q = a.in.q;
  if (q.dtype() != f16 && q.dtype() != bf16) return false;
  if (switched_off() || a.mask.p > 0 || q.numel() == 0 || !has_graph(a)) return false;
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

/// Queries under `id`, keys and values under those after it.
void add_qkv(const Qkv& x, int64_t id, std::vector<dnn::Place>& places) {
  for (const Tensor* each : {&x.q, &x.k, &x.v}) places.push_back({id++, each->data()});
}

/// Values that the library reads from the host when an execution begins.
struct Constants {
  float scale, masked = -std::numeric_limits<float>::infinity(), one = 1;
};

/// Memory of this file's own, which like that of kernels (tensors.h) counts as nobody's.
Tensor scratch(const Shape& shape, DType dtype, Device device) {
  memory::OwnCounter uncounted;
  return empty(shape, dtype, device);
}

/// [batch, heads, time] as the library has it, seen as [tokens, heads] is: [batch, time, heads].
Tensor turned(const Tensor& statistics) { return statistics.transpose(1, 2); }
Tensor by_sequence(const Tensor& lse, const AttentionShape& s) {
  return lse.view({s.batch, s.time, s.heads});
}

void execute(const dnn::Plan& plan, Device device, std::span<const dnn::Place> places) {
  Tensor workspace = scratch({int64_t(plan.workspace())}, u8, device);
  cudaStream_t stream = context(device.index).stream();
  plan.execute(library(device.index).on(stream), places, workspace.data());
}

}  // namespace

namespace TRIAX_TARGET {

bool fused_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  if (!usable(a, lse, {a.in.q, a.in.k, a.in.v, y})) return false;
  Device device = y.device();
  context(device.index);
  AttentionShape shape = shape_of(a, Pass::forward);
  const dnn::Plan* plan = library(device.index).plan(shape);
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
  context(device.index);
  AttentionShape shape =
      shape_of(a, deterministic() ? Pass::deterministic_backward : Pass::backward);
  shape.dq = strides_of(d.q), shape.dk = strides_of(d.k), shape.dv = strides_of(d.v);
  const dnn::Plan* plan = library(device.index).plan(shape);
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
