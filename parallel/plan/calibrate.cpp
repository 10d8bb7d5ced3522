#include "triax/parallel/plan/calibrate.h"

#include <algorithm>
#include <array>
#include <utility>

#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/parallel/settings/bytes.h"

namespace triax::parallel {
namespace {

using BenchWork = Bench::Work;
/// Makes work on a device; its tensors are there when it returns.
using Maker = std::function<BenchWork(Device)>;

/// Makes work of `f`, forward and backward, on leaves of these shapes.
Maker differentiated(std::vector<Shape> shapes, DType dtype,
                     std::function<Tensor(const Tensors&)> f) {
  return [=](Device device) -> BenchWork {
    Tensors leaves;
    for (auto& shape : shapes) require_grad(leaves.emplace_back(full(shape, 0.5, dtype, device)));
    return [=] {
      Tensor y = f(leaves);
      backward(y, full(y.shape(), 0.5, y.dtype(), y.device()));
      for (const Tensor& x : leaves) std::exchange(grad(x), {});
    };
  };
}

/// Makes blocks of a transformer: when one runs, the caches have lost its weights.
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

/// Returns the factor by which work is larger on GPUs: a kernel must outlast its start, which takes
/// the host some microseconds, and its tensors must not stay in the caches.
int64_t larger_on_gpus(Device device) { return device.kind == Device::Kind::cuda ? 64 : 1; }

/// Makes stretches of `more` / `less` times as many tokens; `less` divides sequence lengths too.
std::vector<Maker> stretches(DType dtype, int64_t more, int64_t less) {
  auto scaled = [=](int64_t tokens) { return tokens * more / less; };
  std::vector<Maker> all;
  for (auto [rows, in, out] : {std::array<int64_t, 3>{256, 128, 512},
                               {512, 384, 1536},
                               {1024, 512, 512},
                               {512, 1024, 1024}})
    all.push_back(differentiated({{scaled(rows), in}, {out, in}}, dtype,
                                 [](const Tensors& t) { return linear(t[0], t[1]); }));
  for (auto [time, heads, dim] : {std::array<int64_t, 3>{64, 4, 32}, {256, 6, 64}, {512, 4, 64}})
    all.push_back(differentiated(
        {{scaled(2 * time), heads, 3, dim}}, dtype,
        [time = time / less](const Tensors& t) { return attention(t[0], {.time = time}); }));
  for (auto [rows, width] : {std::array<int64_t, 2>{64, 128}, {512, 512}, {1024, 1024}}) {
    all.push_back(differentiated({{scaled(rows), width}, {width}, {width}}, dtype,
                                 [](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); }));
    all.push_back(differentiated({{scaled(rows), width}}, dtype,
                                 [](const Tensors& t) { return gelu(t[0]); }));
  }
  for (auto [tokens, width, heads, time] :
       {std::array<int64_t, 4>{256, 128, 4, 64}, {512, 384, 6, 128}, {512, 512, 8, 256}})
    all.push_back(blocks(scaled(tokens), width, heads, time / less, dtype));
  return all;
}

/// Makes AdamW's work on fp32 parameters, which moves 28 bytes each.
constexpr int64_t updated_on_cpus = 1 << 22;
Maker adamw(int64_t updated) {
  return [=](Device device) -> BenchWork {
    auto flat = [&] { return full({updated}, 0.5, f32, device); };
    OptimizerSlot slot{.weight = flat(), .grad = flat(), .master = {}, .decayed = {{0, updated}}};
    Tensor m = flat(), v = flat();
    return [=] {
      AdamWRule rule{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};
      backend(device).update(slot, {m, v}, rule, {.lr = 1e-6});
    };
  };
}

KernelWork counted_work(const Maker& make, bool on_gpu) {
  BenchWork work = make(meta_device);
  KernelWork before = meta_work();
  work();
  KernelWork all = meta_work() - before;
  return on_gpu ? all.on_gpu() : all;
}

/// Sets rates of attention and bytes, and a kernel's start; returns the rate of products.
double set_rates(Hardware& h, const std::vector<Measured>& measured) {
  std::vector<std::vector<double>> terms;
  std::vector<double> times;
  for (auto& [w, seconds] : measured) {
    terms.push_back(
        {w.products - w.attention, w.attention, w.bytes, double(w.kernels + w.matmuls)});
    times.push_back(seconds);
  }
  auto found = fit(terms, times);
  check_input(found[0] > 0 && found[2] > 0, Exit::config,
              "calibrate: these times do not tell how fast {} are\n"
              "  Run it again while nothing else runs.",
              found[0] > 0 ? "kernels that move bytes" : "products");
  auto rate = [&](size_t i) { return 1 / std::max(found[i], 1e-30); };
  h.attention = std::min(1., rate(1) / rate(0));
  h.bandwidth = rate(2), h.kernel_start = found[3];
  h.products = h.kernels = 1;
  return rate(0);
}

/// Returns the rate of products in another precision, whose other kernels have the rates of `h`;
/// `otherwise` if products take no time.
double rate_of_products(const Hardware& h, const std::vector<Measured>& measured,
                        double otherwise) {
  std::vector<std::vector<double>> terms;
  std::vector<double> times;
  for (auto& [w, seconds] : measured) {
    double rest = w.bytes / h.bandwidth + double(w.kernels + w.matmuls) * h.kernel_start;
    if (w.products == 0 || seconds <= rest) continue;
    terms.push_back({w.products - w.attention + w.attention / h.attention});
    times.push_back(seconds - rest);
  }
  return terms.empty() ? otherwise : 1 / std::max(fit(terms, times)[0], 1e-30);
}

/// The fp32 elements of the smallest all-reduce; each of the others has four times as many.
constexpr int64_t smallest_reduced = 1 << 8;
/// Returns the runs of an all-reduce; short ones are repeated, since ranks start at other times.
constexpr int64_t times_reduced(int64_t elements) { return elements < 1 << 16 ? 16 : 1; }

/// Adds all-reduces over all ranks, by size.
std::vector<size_t> add_reductions(Bench& bench, World& world) {
  std::vector<size_t> all;
  if (world.size() == 1) return all;
  int64_t largest = larger_on_gpus(bench.device()) << 22;
  for (int64_t n = smallest_reduced; n <= largest; n <<= 2)
    all.push_back(bench.add([&world, n, x = zeros({n}, f32, bench.device())] {
      for (int64_t i = 0; i < times_reduced(n); ++i) world.comm().all_reduce(x).wait();
    }));
  return all;
}

void set_links(Hardware& h, const std::vector<double>& times, int ranks) {
  if (times.empty()) return;
  std::vector<std::vector<double>> terms;
  int64_t n = smallest_reduced;
  for (size_t i = 0; i < times.size(); ++i, n <<= 2) {
    auto repeats = double(times_reduced(n));
    terms.push_back({repeats * 2 * double(ranks - 1) / ranks * 4 * double(n), repeats});
  }
  auto found = fit(terms, times);
  check_input(found[0] > 0, Exit::config,
              "calibrate: all-reduces of all sizes took as long\n"
              "  Run it again while nothing else runs.");
  h.link = 1 / found[0], h.latency = found[1];
  h.link_part = 1;
}

/// Returns the hardware as far as this host knows it without a measurement.
Hardware known_hardware(const World& world, Device device) {
  bool on_gpu = device.kind == Device::Kind::cuda;
  Hardware h = hardware_named(on_gpu ? "h100" : "cpu");  // for what one host cannot tell
  h.launch = 0;                                          // is in the times of kernels
  h.memory = on_gpu ? double(gpu_memory(device.index)) : available_memory() / world.local_size();
  h.reserve = h.memory / 16;
  if (world.size() > 1) {  // keeps the shipped hardware's share of the network
    h.network *= double(world.size()) / double(h.per_node);
    h.per_node = world.size();
  }
  return h;
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

Calibration calibrate(World& world, const Effort& effort) {
  check_input(
      world.local_size() == world.size(), Exit::config,
      "calibrate: {} ranks on several hosts; expected those of one\n  Start it on one host, "
      "and write the network's bandwidth into the file.",
      world.size());
  Bench bench(world, effort);
  bool on_gpu = bench.device().kind == Device::Kind::cuda;
  Hardware h = known_hardware(world, bench.device());
  int64_t more = larger_on_gpus(bench.device()), updated = more * updated_on_cpus;
  auto full = stretches(f32, more, effort.less), low = stretches(bf16, more, effort.less);
  auto add = [&](const std::vector<Maker>& makers) {
    return transformed(makers, [&](auto& make) { return bench.add(make(bench.device())); });
  };
  auto full_at = add(full), low_at = add(low);
  size_t update_at = bench.add(adamw(updated)(bench.device()));
  auto reductions_at = add_reductions(bench, world);
  auto seconds = bench.seconds();
  auto measured = [&](const std::vector<Maker>& makers, const std::vector<size_t>& at) {
    std::vector<Measured> all;
    for (size_t i = 0; i < makers.size(); ++i)
      all.push_back({counted_work(makers[i], on_gpu), seconds[at[i]]});
    return all;
  };
  auto of_full = measured(full, full_at), of_low = measured(low, low_at);
  if (on_gpu) {  // attention has kernels of its own in bf16, and that is what GPUs train in
    h.low = set_rates(h, of_low);
    h.fp32 = rate_of_products(h, of_full, h.low);
  } else {
    h.fp32 = set_rates(h, of_full);
    h.low = rate_of_products(h, of_low, h.fp32);
  }
  double kernels = h.bandwidth, update = 28. * double(updated) / seconds[update_at];
  h.bandwidth = std::max(kernels, update);  // both are parts of it
  h.kernels = kernels / h.bandwidth, h.update = update / h.bandwidth;
  set_links(h, transformed(reductions_at, [&](size_t i) { return seconds[i]; }), world.size());
  return {h, bench.spread()};
}

std::string hardware_file(const Hardware& h) {
  Hardware copy = h;
  return "# Written by `calibrate`: rates reached by all ranks at once. The network to other "
         "nodes\n"
         "# was not measured.\n" +
         to_toml(hardware_settings(copy));
}

}  // namespace triax::parallel
