#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "bench/shapes.h"
#include "triax/core/shared/attention.h"
#include "triax/core/shared/team.h"

// What the CPU kernels reach: products and attention in GFLOP/s; memory-bound kernels in GB/s,
// beside memcpy. OMP_NUM_THREADS sets the threads. Machines are noisy:
//   bench_kernels --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
namespace triax {
namespace {

void count_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(
      flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
void count_bytes(benchmark::State& state, double bytes) {
  state.counters["GB/s"] = benchmark::Counter(
      bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

// -- Products.

void multiply(benchmark::State& state, const Matmul& p) {
  for (auto _ : state) backend(cpu).matmul(p);
  count_flops(state, 2.0 * double(p.c.size(0) * p.c.size(1) * p.a.size(1)));
}

// Of a GPT of width 384 on 1024 tokens, and of GPT-2 124M on 256, with its head.
std::vector<ProductShape> all_products() {
  std::vector<ProductShape> all = block_products(1024, 384);
  for (const ProductShape& s : block_products(256, 768)) all.push_back(s);
  all.push_back({Kind::forward, 256, 50257, 768});
  return all;
}

void register_products() {
  for (DType dtype : {f32, bf16})
    for (const ProductShape& s : all_products()) {
      std::string name = std::string("matmul/") + triax::name(dtype) + '/' +
                         kind_names[int(s.kind)] + '/' + std::to_string(s.m) + 'x' +
                         std::to_string(s.n) + 'x' + std::to_string(s.k);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        multiply(state, product(s, dtype));
      })->UseRealTime();
    }
}

// -- Causal attention: sequences x time x heads x head_dim; two products forward, five backward,
// half each.

/// Views of one projection.
Qkv packed(int64_t tokens, int64_t heads, int64_t dim, DType dtype) {
  return unpack(values({tokens, heads, 3, dim}, dtype));
}
Qkv apart(int64_t tokens, int64_t heads, int64_t dim, DType dtype) {
  Shape one{tokens, heads, 1, dim};
  return {values(one, dtype), values(one, dtype), values(one, dtype)};
}
/// Three queries read one key.
Qkv grouped(int64_t tokens, int64_t heads, int64_t dim, DType dtype) {
  return unpack(values({tokens, heads / 3, 5, dim}, dtype));
}

using Make = Qkv (*)(int64_t tokens, int64_t heads, int64_t dim, DType dtype);

void attention(benchmark::State& state, DType dtype, Make make, bool backward) {
  int64_t sequences = state.range(0), time = state.range(1), heads = state.range(2),
          dim = state.range(3), tokens = sequences * time;
  Attention a{make(tokens, heads, dim, dtype), time, Band::causal(time, time)};
  Qkv d = make(tokens, heads, dim, dtype);
  Tensor y = empty({tokens, heads * dim}, dtype, cpu);
  Tensor lse = empty({tokens, heads}, accumulator(dtype), cpu), dy = values(y.shape(), dtype);
  backend(cpu).attention(a, y, lse);
  for (auto _ : state) {
    if (backward) backend(cpu).attention_backward(a, y, lse, dy, d);
    else backend(cpu).attention(a, y, lse);
  }
  count_flops(state, (backward ? 5.0 : 2.0) * double(tokens * (time + 1) * heads * dim));
}
void attention_forward(benchmark::State& state, DType dtype, Make make) {
  attention(state, dtype, make, false);
}
void attention_backward(benchmark::State& state, DType dtype, Make make) {
  attention(state, dtype, make, true);
}
void with_sizes(benchmark::internal::Benchmark* b) {
  b->Args({4, 256, 6, 64})->Args({4, 64, 12, 64})->Args({1, 1024, 12, 64})->UseRealTime();
}
BENCHMARK_CAPTURE(attention_forward, f32, f32, packed)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_backward, f32, f32, packed)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_forward, bf16, bf16, packed)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_backward, bf16, bf16, packed)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_forward, bf16_apart, bf16, apart)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_backward, bf16_apart, bf16, apart)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_forward, bf16_grouped, bf16, grouped)->Apply(with_sizes);
BENCHMARK_CAPTURE(attention_backward, bf16_grouped, bf16, grouped)->Apply(with_sizes);

// -- Bound by memory.

constexpr int64_t tokens = 4096, width = 1536;

void copy_of_memory(benchmark::State& state) {
  Tensor x = values({tokens, width}), y = empty_like(x);
  size_t part = x.bytes() / size_t(team_threads());
  for (auto _ : state)
    in_team(team_threads(), [&](int share) {
      std::memcpy(static_cast<char*>(y.data()) + part * size_t(share),
                  static_cast<char*>(x.data()) + part * size_t(share), part);
    });
  count_bytes(state, 2.0 * double(x.bytes()));
}
BENCHMARK(copy_of_memory)->UseRealTime();

void gelu(benchmark::State& state, DType dtype) {
  Tensor x = values({tokens, width}, dtype), y = empty_like(x);
  for (auto _ : state) backend(cpu).unary(Unary::gelu, x, y);
  count_bytes(state, 2.0 * double(x.bytes()));
}
BENCHMARK_CAPTURE(gelu, f32, f32)->UseRealTime();
BENCHMARK_CAPTURE(gelu, bf16, bf16)->UseRealTime();

void gelu_backward(benchmark::State& state, DType dtype) {
  Tensor x = values({tokens, width}, dtype), dx = empty_like(x);
  for (auto _ : state) backend(cpu).unary_backward(Unary::gelu, x, x, x, dx, Write::set);
  count_bytes(state, 3.0 * double(x.bytes()));
}
BENCHMARK_CAPTURE(gelu_backward, f32, f32)->UseRealTime();
BENCHMARK_CAPTURE(gelu_backward, bf16, bf16)->UseRealTime();

Norm layer_norm(DType dtype) {
  return {.x = values({tokens, width}, dtype),
          .gamma = values({width}, dtype),
          .beta = values({width}, dtype),
          .mean = empty({tokens}, f32, cpu),
          .rstd = empty({tokens}, f32, cpu),
          .eps = 1e-5};
}
void norm(benchmark::State& state, DType dtype) {
  Norm n = layer_norm(dtype);
  Tensor y = empty_like(n.x);
  for (auto _ : state) backend(cpu).norm(n, y);
  count_bytes(state, 2.0 * double(n.x.bytes()));
}
BENCHMARK_CAPTURE(norm, f32, f32)->UseRealTime();
BENCHMARK_CAPTURE(norm, bf16, bf16)->UseRealTime();

void norm_backward(benchmark::State& state, DType dtype) {
  Norm n = layer_norm(dtype);
  Tensor dx = empty_like(n.x), dgamma = empty({width}, f32, cpu), dbeta = empty({width}, f32, cpu);
  backend(cpu).norm(n, dx);
  for (auto _ : state) {
    backend(cpu).norm_backward(n, n.x, dx, Write::set);
    backend(cpu).norm_backward_weights(n, n.x, dgamma, dbeta, Write::set);
  }
  count_bytes(state, 5.0 * double(n.x.bytes()));
}
BENCHMARK_CAPTURE(norm_backward, f32, f32)->UseRealTime();

void cross_entropy(benchmark::State& state, DType dtype) {
  const int64_t rows = 256, columns = 50257;
  CrossEntropy c{.logits = values({rows, columns}, dtype),
                 .targets = from_host(std::vector<int64_t>(rows, 7), {rows}, cpu),
                 .vocab = columns};
  Tensor stats = empty({rows, 4}, f32, cpu), losses = empty({rows}, f32, cpu);
  Tensor scale = full({1}, 1, f32, cpu), dlogits = empty_like(c.logits);
  for (auto _ : state) {
    backend(cpu).cross_entropy_stats(c, stats);
    backend(cpu).cross_entropy_losses(c, stats, losses);
    backend(cpu).cross_entropy_backward(c, stats, scale, dlogits);
  }
  count_bytes(state, 3.0 * double(c.logits.bytes()));
}
BENCHMARK_CAPTURE(cross_entropy, f32, f32)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy, bf16, bf16)->UseRealTime();

void adamw(benchmark::State& state) {
  const int64_t n = 8 << 20;
  OptimizerSlot s{.weight = values({n}), .grad = values({n}), .master = {}, .decayed = {{0, n}}};
  Tensor m = zeros({n}, f32, cpu), v = zeros({n}, f32, cpu);
  AdamWRule rule{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
  for (auto _ : state) backend(cpu).update(s, {m, v}, rule, {.lr = 1e-6});
  count_bytes(state, 28.0 * double(n));
}
BENCHMARK(adamw)->UseRealTime();

}  // namespace
}  // namespace triax

int main(int argc, char** argv) {
  triax::register_products();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  benchmark::AddCustomContext("backend", triax::backend(triax::cpu).name());
  benchmark::AddCustomContext("threads", std::to_string(triax::team_threads()));
  benchmark::RunSpecifiedBenchmarks();
}
