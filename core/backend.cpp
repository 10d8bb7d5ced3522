#include "triax/core/backend.h"

#include "triax/core/check.h"
#include "triax/core/cpu/levels.h"
#if TRIAX_CUDA
#include "triax/core/cuda/runtime/devices.h"
#endif
#include "triax/core/functors/binary.h"
#include "triax/core/gpus.h"
#include "triax/core/meta/meta.h"

namespace triax {

Mark::~Mark() = default;
Graph::~Graph() = default;
Backend::~Backend() = default;
std::shared_ptr<Allocator> Backend::host_allocator() { return allocator(); }
void Backend::transfer(const Tensor& from, const Tensor& to) { copy(from, to); }
std::unique_ptr<Mark> Backend::mark() { return nullptr; }
std::unique_ptr<Graph> Backend::capture(const std::function<void()>&) {
  fail(Exit::config, "graph: {} has none; expected a GPU", name());
}
void Backend::accumulate_fixed(const Tensor&, const FixedPoint&, const Tensor&, Write) {
  fail(Exit::config, "bitwise: {} has no fixed-point sums; expected the CPU", name());
}
void Backend::squares_fixed(const Tensor& x, const Tensor& out) {
  accumulate_fixed(x, {}, out, Write::add);
}
void Backend::matmul_onto(const Matmul& p, const Tensor& rest) {
  matmul(p);
  binary(binary_id<functors::Add>(), p.c, rest, p.c);
}
void Backend::cross_entropy_at_once(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                                    const Tensor& dlogits) {
  cross_entropy_stats(c, stats);
  cross_entropy_backward(c, stats, scale, dlogits);
}
void Backend::decide_step(const Tensor& request, const Tensor& totals, const Tensor& decision) {
  auto& p = *static_cast<StepDecision*>(decision.data());
  p = fn::decide_step(*static_cast<const StepRequest*>(request.data()),
                      *static_cast<const StepTotals*>(totals.data()), p);
}

void round_product(Backend& on, const Matmul& p,
                   const std::function<void(const Matmul& parts)>& product) {
  auto in_memory_order = [&](const Tensor& x) {
    return p.c.is_contiguous() || p.adds_up() ? x : x.transpose(0, 1);
  };
  Tensor sums = in_memory_order(p.c);
  Tensor parts = empty(sums.shape(), accumulator(p.a.dtype()), p.c.device());
  product({p.a, p.b, in_memory_order(parts)});
  on.accumulate_fixed(parts, *p.rounding, p.adds_up() ? sums.narrow(0, 0, 1) : sums, p.write);
}

void matmul_in_steps(Backend& on, const Matmul& p) {
  if (p.rounding) return round_product(on, p, [&](const Matmul& parts) { on.matmul(parts); });
  if (p.row_sums.defined())
    on.sum(p.a.transpose(0, 1), p.row_sums.view({1, p.row_sums.size(0)}), p.write);
  if (!p.gelu_of.defined()) return on.matmul({p.a, p.b, p.c, p.write});
  bool adds = p.write == Write::add;
  Tensor product = adds ? empty_like(p.c) : p.c;
  on.matmul({p.a, p.b, product});
  on.unary_backward(Unary::gelu, p.gelu_of, p.gelu_of, product, p.c, p.write);
}

Backend& backend(Device device) {
  if (device == meta_device) return meta_backend();
#if TRIAX_CUDA
  if (device.kind == Device::Kind::cuda) return cuda::backend_of(device.index);
#endif
  check_input(
      device.kind == Device::Kind::cpu, Exit::config,
      "device: {} asked for; this build has cpu only; configure with -DTRIAX_CUDA=ON for GPUs",
      device);
  return host::backend();
}

#if !TRIAX_CUDA  // else core/cuda/ has them
int gpu_count() { return 0; }
std::string gpu_uuid(int index) {
  backend({Device::Kind::cuda, index});  // throws
  return {};
}
size_t gpu_memory(int index) {
  backend({Device::Kind::cuda, index});  // throws
  return 0;
}
std::unique_ptr<ProfileClock> gpu_clock(int index) {
  backend({Device::Kind::cuda, index});  // throws
  return nullptr;
}
void set_gpu_bits(GpuBits) {}
void begin_gpu_range(const char*) {}
void end_gpu_range() {}
#endif

void trim_memory() {
  host::trim_memory();
#if TRIAX_CUDA
  cuda::trim_memory();
#endif
}

}  // namespace triax
