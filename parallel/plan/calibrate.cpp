#include "parallel/plan/calibrate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "core/backend.h"
#include "core/check.h"
#include "core/gpus.h"

namespace triax::parallel {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Work = std::function<void()>;
/// Makes work on a device; its tensors are there when it returns.
using Maker = std::function<Work(Device)>;

/// `f` of leaves of these shapes, forward and backward.
Maker differentiated(std::vector<Shape> shapes, DType dtype,
                     std::function<Tensor(const Tensors&)> f) {
  return [=](Device device) -> Work {
    Tensors leaves;
    for (auto& shape : shapes) require_grad(leaves.emplace_back(full(shape, 0.5, dtype, device)));
    return [=] {
      Tensor y = f(leaves);
      backward(y, full(y.shape(), 0.5, y.dtype(), y.device()));
      for (const Tensor& x : leaves) std::exchange(grad(x), {});
    };
  };
}

/// Blocks of a transformer, in whose turn the caches have forgotten each one's weights.
Maker blocks(int64_t tokens, int64_t width, int64_t heads, int64_t time, DType dtype) {
  constexpr size_t count = 4, each = 7;
  std::vector<Shape> shapes{{tokens, width}};
  for (size_t i = 0; i < count; ++i)
    for (auto& shape : {Shape{width}, Shape{width}, Shape{3 * width, width}, Shape{width, width},
                        Shape{4 * width, width}, Shape{4 * width}, Shape{width, 4 * width}})
      shapes.push_back(shape);
  return differentiated(shapes, dtype, [=](const Tensors& leaves) {
    Tensor x = leaves[0];
    for (size_t i = 1; i < leaves.size(); i += each) {
      const Tensor* t = &leaves[i];
      Tensor qkv = view(linear(layer_norm(x, t[0], t[1]), t[2]), {tokens, heads, 3, width / heads});
      x = x + linear(attention(qkv, {.time = time}), t[3]);
      x = x + linear(linear_gelu(layer_norm(x, t[0], t[1]), t[4], t[5]), t[6]);
    }
    return x;
  });
}

/// Of fewer tokens by a factor of `less`.
std::vector<Maker> stretches(DType dtype, int64_t less) {
  std::vector<Maker> all;
  for (auto [rows, in, out] : {std::array<int64_t, 3>{256, 128, 512},
                               {512, 384, 1536},
                               {1024, 512, 512},
                               {512, 1024, 1024}})
    all.push_back(differentiated({{rows / less, in}, {out, in}}, dtype,
                                 [](const Tensors& t) { return linear(t[0], t[1]); }));
  for (auto [time, heads, dim] : {std::array<int64_t, 3>{64, 4, 32}, {256, 6, 64}, {512, 4, 64}})
    all.push_back(differentiated(
        {{2 * time / less, heads, 3, dim}}, dtype,
        [time = time / less](const Tensors& t) { return attention(t[0], {.time = time}); }));
  for (auto [rows, width] : {std::array<int64_t, 2>{64, 128}, {512, 512}, {1024, 1024}}) {
    all.push_back(differentiated({{rows / less, width}, {width}, {width}}, dtype,
                                 [](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); }));
    all.push_back(
        differentiated({{rows / less, width}}, dtype, [](const Tensors& t) { return gelu(t[0]); }));
  }
  for (auto [tokens, width, heads, time] :
       {std::array<int64_t, 4>{256, 128, 4, 64}, {512, 384, 6, 128}, {512, 512, 8, 256}})
    all.push_back(blocks(tokens / less, width, heads, time / less, dtype));
  return all;
}

/// AdamW of parameters in fp32, which moves 28 bytes each.
constexpr int64_t updated = 4 << 20;
Maker adamw() {
  return [](Device device) -> Work {
    auto flat = [&] { return full({updated}, 0.5, f32, device); };
    OptimizerSlot slot{.weight = flat(), .grad = flat(), .master = {}, .decayed = {{0, updated}}};
    Tensor m = flat(), v = flat();
    return [=] {
      AdamWStep step{.lr = 1e-6,
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .eps = 1e-8,
                     .weight_decay = 0.1,
                     .grad_scale = 1,
                     .step = 1};
      backend(device).adamw(slot, m, v, step);
    };
  };
}

KernelWork counted(const Maker& make) {
  Work work = make(meta_device);
  KernelWork before = meta_work();
  work();
  KernelWork after = meta_work();
  return {after.products - before.products,   after.bytes - before.bytes,
          after.kernels - before.kernels,     after.matmuls - before.matmuls,
          after.attention - before.attention, after.scores - before.scores};
}

class Bench {
 public:
  Bench(World& world, double round) : world_(world), round_(round) {}

  /// Of one run: the median of some rounds, the mean of the ranks, which run it at once.
  /// Collective.
  double seconds(const Work& work) {
    work();  // memory, and code that is made at first use
    double start = now();
    work();
    finish();
    auto runs = int64_t(std::clamp(round_ / std::max(1e-7, now() - start), 1., 10000.));
    Tensor least = from_host(std::vector<int64_t>{runs}, {1}, cpu);
    world_.host().all_reduce(least, ReduceOp::min).wait();
    runs = least.to_host<int64_t>()[0];  // collectives among them are as many on all ranks
    std::vector<double> rounds;
    for (int i = 0; i < 5; ++i) {
      world_.host().barrier();
      start = now();
      for (int64_t n = 0; n < runs; ++n) work();
      finish();
      rounds.push_back((now() - start) / double(runs));
    }
    std::ranges::nth_element(rounds, rounds.begin() + 2);
    Tensor mean = from_host(std::vector<double>{rounds[2] / world_.size()}, {1}, cpu);
    world_.host().all_reduce(mean).wait();
    return mean.to_host<double>()[0];
  }

  std::vector<Measured> kernels(const std::vector<Maker>& makers) {
    std::vector<Measured> all;
    for (auto& make : makers) all.push_back({counted(make), seconds(make(device()))});
    return all;
  }

  Device device() { return world_.comm().device(); }

 private:
  /// Waits for the device.
  void finish() { (void)zeros({1}, f32, device()).to_host<float>(); }

  World& world_;
  double round_;  // seconds
};

/// Rates of fp32: products, attention, bytes; and what a kernel takes to start.
void set_rates(Hardware& h, const std::vector<Measured>& measured) {
  std::vector<std::vector<double>> terms;
  std::vector<double> times;
  for (auto& [w, seconds] : measured) {
    terms.push_back(
        {w.products - w.attention, w.attention, w.bytes, double(w.kernels + w.matmuls)});
    times.push_back(seconds);
  }
  auto found = fit(terms, times);
  auto rate = [&](size_t i) { return 1 / std::max(found[i], 1e-30); };
  h.fp32 = rate(0), h.attention = std::min(1., rate(1) / rate(0));
  h.bandwidth = rate(2), h.kernel_start = found[3];
  h.products = h.kernels = 1;
}

/// The rate of products in bf16, whose other kernels are as those of fp32.
void set_low_rate(Hardware& h, const std::vector<Measured>& measured) {
  std::vector<std::vector<double>> terms;
  std::vector<double> times;
  for (auto& [w, seconds] : measured) {
    double rest = w.bytes / h.bandwidth + double(w.kernels + w.matmuls) * h.kernel_start;
    if (w.products == 0 || seconds <= rest) continue;
    terms.push_back({w.products - w.attention + w.attention / h.attention});
    times.push_back(seconds - rest);
  }
  h.low = terms.empty() ? h.fp32 : 1 / std::max(fit(terms, times)[0], 1e-30);
}

/// Of all-reduces over all ranks.
void set_links(Hardware& h, Bench& bench, World& world) {
  if (world.size() == 1) return;
  std::vector<std::vector<double>> terms;
  std::vector<double> times;
  for (int64_t n = 1 << 8; n <= 1 << 22; n <<= 2) {
    Tensor x = zeros({n}, f32, bench.device());
    times.push_back(bench.seconds([&] { world.comm().all_reduce(x).wait(); }));
    terms.push_back({2 * double(world.size() - 1) / world.size() * 4 * double(n), 1});
  }
  auto found = fit(terms, times);
  h.link = h.network = 1 / std::max(found[0], 1e-30), h.latency = found[1];
  h.network *= world.size();
  h.link_part = h.network_part = 1;
}

}  // namespace

std::vector<double> fit(const std::vector<std::vector<double>>& terms,
                        const std::vector<double>& values) {
  size_t unknowns = terms.at(0).size();
  std::vector<double> x(unknowns, 0);
  for (int sweep = 0; sweep < 2000; ++sweep)  // one coefficient after the other
    for (size_t k = 0; k < unknowns; ++k) {
      double up = 0, down = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        double rest = 1;
        for (size_t j = 0; j < unknowns; ++j)
          if (j != k) rest -= x[j] * terms[i][j] / values[i];
        double own = terms[i][k] / values[i];
        up += own * rest, down += own * own;
      }
      if (down > 0) x[k] = std::max(0., up / down);
    }
  return x;
}

Hardware calibrate(World& world, const Effort& effort) {
  check_input(
      world.local_size() == world.size(), Exit::config,
      "calibrate: {} ranks on several hosts; expected those of one\n  Start it on one host, "
      "and write the network's bandwidth into the file.",
      world.size());
  Bench bench(world, effort.round);
  bool on_gpu = bench.device().kind == Device::Kind::cuda;
  Hardware h = hardware_named(on_gpu ? "h100" : "cpu");  // for what one host cannot tell
  h.launch = 0;                                          // part of what kernels were seen to take
  h.memory =
      on_gpu ? double(gpu_memory(bench.device().index)) : available_memory() / world.local_size();
  h.reserve = h.memory / 16;
  h.per_node = world.size();
  set_rates(h, bench.kernels(stretches(f32, effort.less)));
  set_low_rate(h, bench.kernels(stretches(bf16, effort.less)));
  double kernels = h.bandwidth,
         update = 28. * double(updated) / bench.seconds(adamw()(bench.device()));
  h.bandwidth = std::max(kernels, update);  // of which both are parts
  h.kernels = kernels / h.bandwidth, h.update = update / h.bandwidth;
  set_links(h, bench, world);
  return h;
}

std::string hardware_file(const Hardware& h) {
  Hardware copy = h;
  return "# Written by `calibrate`: rates reached by all ranks at once. The network to other "
         "nodes\n"
         "# was not measured.\n" +
         to_toml(hardware_settings(copy));
}

}  // namespace triax::parallel
