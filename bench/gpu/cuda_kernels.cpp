#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/status.h"
#include "triax/core/functors/binary.h"
#include "triax/core/shared/attention.h"

// What the kernels of one GPU reach at the sizes of GPT-2 124M, B 64, T 1024, beside what a copy of
// as many bytes does: a JSON object a line, with the median of the repetitions, their quartiles,
// and TFLOP/s or GB/s of the bytes that have to move.
//   bench_cuda_kernels [NAME]     only kernels whose name begins so
namespace triax {
namespace {

constexpr Device gpu{Device::Kind::cuda, 0};
constexpr int warmup = 5, repetitions = 25;
constexpr int64_t sequences = 64, time = 1024, tokens = sequences * time;
constexpr int64_t heads = 12, head_dim = 64, width = heads * head_dim, vocab = 50304;
constexpr int64_t parameters = 124'475'904;

struct TimedEvent {
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
  };
  TimedEvent() {
    cudaEvent_t event = nullptr;
    cuda::require(cudaEventCreate(&event), "cudaEventCreate");
    handle.reset(event);
  }
  std::unique_ptr<CUevent_st, Destroy> handle;
};

/// What one repetition does: `flops` or, if there are none, `bytes`.
struct Work {
  double flops = 0, bytes = 0;
};

class Bench {
 public:
  explicit Bench(std::string only) : only_(std::move(only)) {}

  /// Time `kernel` if its name is wanted. Its inputs are not in the cache when it starts.
  void run(const std::string& name, Work work, const std::function<void()>& kernel) {
    if (!name.starts_with(only_)) return;
    print(name, work, times(kernel));
  }

 private:
  /// Milliseconds, sorted.
  std::vector<float> times(const std::function<void()>& kernel) {
    std::vector<float> ms;
    for (int i = 0; i < warmup + repetitions; ++i) {
      float took = once(kernel);
      if (i >= warmup) ms.push_back(took);
    }
    std::sort(ms.begin(), ms.end());
    return ms;
  }

  /// Bytes a ms of a copy that reads and writes `bytes` in all, or 4 GB: above, none is faster.
  double copy_rate(double bytes) {
    auto half = int64_t(std::min(bytes, 4e9) / 2);
    double& rate = copies_[half];
    if (rate > 0) return rate;
    Tensor x = empty({half}, u8, gpu), y = empty_like(x);
    std::vector<float> ms = times([&] { backend(gpu).copy(x, y); });
    return rate = 2.0 * double(half) / ms[ms.size() / 2];
  }

  float once(const std::function<void()>& kernel) {
    cudaStream_t stream = cuda::context(gpu.index).stream();
    backend(gpu).fill(flushed_, 0);
    cuda::require(cudaEventRecord(begin_.handle.get(), stream), "cudaEventRecord");
    kernel();
    cuda::require(cudaEventRecord(end_.handle.get(), stream), "cudaEventRecord");
    cuda::require(cudaEventSynchronize(end_.handle.get()), "cudaEventSynchronize");
    float ms = 0;
    cuda::require(cudaEventElapsedTime(&ms, begin_.handle.get(), end_.handle.get()),
                  "cudaEventElapsedTime");
    return ms;
  }

  void print(const std::string& name, Work work, const std::vector<float>& ms) {
    double median = ms[ms.size() / 2];
    std::string rate = work.flops > 0
                           ? fmt::format(R"("tflops":{:.1f})", work.flops / median * 1e-9)
                           : fmt::format(R"("gb_s":{:.1f})", work.bytes / median * 1e-6);
    if (work.flops == 0)
      rate +=
          fmt::format(R"(,"share_of_copy":{:.3f})", work.bytes / median / copy_rate(work.bytes));
    fmt::print(R"({{"name":"{}","ms":{:.4f},"ms_low":{:.4f},"ms_high":{:.4f},"repetitions":{},{}}})"
               "\n",
               name, median, ms[ms.size() / 4], ms[ms.size() * 3 / 4], ms.size(), rate);
    std::fflush(stdout);
  }

  std::string only_;
  Tensor flushed_ = empty({64 << 20}, f32, gpu);  // 256 MiB: more than any cache holds
  TimedEvent begin_, end_;
  std::map<int64_t, double> copies_;  // copy_rate() of so many bytes read
};

/// Numbers around 0, made on the host for a part and repeated: values do not matter, but zeros
/// would draw less power.
Tensor values(const Shape& shape, DType dtype = bf16) {
  Tensor x = empty({shape.numel()}, dtype, gpu);
  int64_t part = std::min<int64_t>(shape.numel(), 1 << 20);
  std::vector<float> v(static_cast<size_t>(part));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 2 * random::uniform(1, i, 0) - 1;
  Tensor some = from_host(v, {part}, cpu).to(dtype).to(gpu);
  for (int64_t at = 0; at < x.numel(); at += part) {
    int64_t count = std::min(part, x.numel() - at);
    backend(gpu).copy(some.narrow(0, 0, count), x.narrow(0, at, count));
  }
  return x.view(shape);
}

// -- Products.

/// x [m, k] w^T, with w [n, k]; dy w, with w stored [k, n]; dy^T x, with dy [k, m], x [k, n], f32.
enum class Kind { forward, input_gradient, weight_gradient };
enum class Epilogue { none, bias, residual, gelu, slope, sums };

struct Product {
  const char* name;
  Kind kind;
  int64_t m, n, k;
};

Matmul operands(const Product& s, Epilogue epilogue) {
  Matmul p;
  p.a = s.kind == Kind::weight_gradient ? values({s.k, s.m}).transpose(0, 1) : values({s.m, s.k});
  p.b = s.kind == Kind::forward ? values({s.n, s.k}).transpose(0, 1) : values({s.k, s.n});
  p.c = empty({s.m, s.n}, s.kind == Kind::weight_gradient ? f32 : bf16, gpu);
  if (epilogue != Epilogue::none && s.kind == Kind::forward) p.bias = values({s.n});
  if (epilogue == Epilogue::gelu) p.before = empty({s.m, s.n}, bf16, gpu);
  if (epilogue == Epilogue::slope) p.gelu_of = values({s.m, s.n});
  if (epilogue == Epilogue::sums) p.row_sums = empty({s.m}, f32, gpu);
  return p;
}

void product(Bench& bench, const Product& s, Epilogue epilogue) {
  const char* endings[] = {"", "+bias", "+bias+residual", "+bias+gelu", "*slope", "+sums"};
  std::string name =
      fmt::format("matmul/{}{}/{}x{}x{}", s.name, endings[int(epilogue)], s.m, s.n, s.k);
  std::shared_ptr<Matmul> p;  // made only if it is wanted
  Tensor rest;
  bench.run(name, {.flops = 2.0 * double(s.m) * double(s.n) * double(s.k)}, [&] {
    if (!p) p = std::make_shared<Matmul>(operands(s, epilogue));
    if (epilogue != Epilogue::residual) return backend(gpu).matmul(*p);
    if (!rest.defined()) rest = values({s.m, s.n});
    backend(gpu).matmul_onto(*p, rest);
  });
}

void products(Bench& bench) {
  product(bench, {"square", Kind::forward, 8192, 8192, 8192}, Epilogue::none);
  constexpr auto fwd = Kind::forward;
  const Product forward[] = {{"qkv", fwd, tokens, 3 * width, width},
                             {"proj", fwd, tokens, width, width},
                             {"up", fwd, tokens, 4 * width, width},
                             {"down", fwd, tokens, width, 4 * width}};
  for (const Product& s : forward) {
    product(bench, s, Epilogue::none);
    product(bench, s, Epilogue::bias);
    product(bench, {"dx", Kind::input_gradient, s.m, s.k, s.n}, Epilogue::none);
    product(bench, {"dw", Kind::weight_gradient, s.n, s.k, s.m}, Epilogue::none);
    product(bench, {"dw", Kind::weight_gradient, s.n, s.k, s.m}, Epilogue::sums);
  }
  for (int i : {1, 3}) product(bench, forward[i], Epilogue::residual);
  product(bench, forward[2], Epilogue::gelu);
  product(bench, {"dx", Kind::input_gradient, tokens, 4 * width, width}, Epilogue::slope);
  product(bench, {"head", fwd, tokens, vocab, width}, Epilogue::none);
  product(bench, {"dx", Kind::input_gradient, tokens, width, vocab}, Epilogue::none);
  product(bench, {"dw", Kind::weight_gradient, vocab, width, tokens}, Epilogue::none);
}

// -- Attention: two products forward and five backward of half a square each.

void attention(Bench& bench) {
  Tensor qkv = values({tokens, heads, 3, head_dim}), dqkv = empty_like(qkv);
  Attention a{unpack(qkv), time, Band::causal(time, time)};
  Tensor y = empty({tokens, width}, bf16, gpu), lse = empty({tokens, heads}, f32, gpu);
  Tensor dy = values({tokens, width});
  double product = double(tokens) * double(time) * double(width);
  bench.run("attention/forward", {.flops = 2 * product},
            [&] { backend(gpu).attention(a, y, lse); });
  backend(gpu).attention(a, y, lse);
  bench.run("attention/backward", {.flops = 5 * product},
            [&] { backend(gpu).attention_backward(a, y, lse, dy, unpack(dqkv)); });
}

// -- Bound by memory. Bytes are those that have to be read and written once.

void copy(Bench& bench) {
  Tensor x = values({tokens, 4 * width}), y = empty_like(x);
  bench.run("copy/bf16", {.bytes = 2.0 * double(x.bytes())}, [&] { backend(gpu).copy(x, y); });
}

// Of `rows` tokens of a model of width `columns`.
void norm(Bench& bench, int64_t rows, int64_t columns, const std::string& of) {
  Norm n{.x = values({rows, columns}),
         .gamma = values({columns}),
         .beta = values({columns}),
         .mean = empty({rows}, f32, gpu),
         .rstd = empty({rows}, f32, gpu),
         .eps = 1e-5};
  Tensor y = empty_like(n.x), dy = values({rows, columns}), dx = values({rows, columns});
  Tensor dgamma = empty({columns}, f32, gpu), dbeta = empty({columns}, f32, gpu);
  double bytes = double(y.bytes());
  bench.run("norm/forward" + of, {.bytes = 2 * bytes}, [&] { backend(gpu).norm(n, y); });
  backend(gpu).norm(n, y);
  bench.run("norm/backward onto the residual's gradient" + of, {.bytes = 4 * bytes},
            [&] { backend(gpu).norm_backward(n, dy, dx, Write::add); });
  bench.run("norm/backward with the weights' gradients" + of, {.bytes = 4 * bytes}, [&] {
    n.parts = backend(gpu).norm_backward(n, dy, dx, Write::add);
    backend(gpu).norm_backward_weights(n, dy, dgamma, dbeta, Write::set);
    n.parts = {};
  });
}

void norms(Bench& bench) {
  norm(bench, tokens, width, "");
  norm(bench, tokens / 4, 1280, "/774M");
  norm(bench, tokens / 8, 1600, "/1.5B");
  norm(bench, tokens / 16, 4096, "/4096");
}

void cross_entropy(Bench& bench) {
  CrossEntropy c{.logits = values({tokens, vocab}),
                 .targets = from_host(std::vector<int64_t>(tokens, 7), {tokens}, cpu).to(gpu),
                 .vocab = vocab};
  Tensor stats = empty({tokens, 4}, f32, gpu), scale = full({1}, 1, f32, gpu);
  double bytes = double(c.logits.bytes());
  bench.run("cross_entropy/forward", {.bytes = bytes},
            [&] { backend(gpu).cross_entropy_stats(c, stats); });
  backend(gpu).cross_entropy_stats(c, stats);
  bench.run("cross_entropy/backward in place", {.bytes = 2 * bytes},
            [&] { backend(gpu).cross_entropy_backward(c, stats, scale, c.logits); });
  bench.run("cross_entropy/at once in place", {.bytes = 2 * bytes},
            [&] { backend(gpu).cross_entropy_at_once(c, stats, scale, c.logits); });
}

void adamw(Bench& bench) {
  OptimizerSlot s{.weight = values({parameters}),
                  .grad = values({parameters}, f32),
                  .master = values({parameters}, f32),
                  .decayed = {{0, parameters}}};
  Tensor m = full({parameters}, 0, f32, gpu), v = full({parameters}, 0, f32, gpu);
  AdamWRule rule{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  // Reads gradient, master and two moments, writes the master, the moments and the bf16 weight.
  bench.run("adamw/bf16 with master", {.bytes = 30.0 * double(parameters)}, [&] {
    backend(gpu).update(s, {m, v}, rule, {.lr = 1e-6});
  });
}

/// Of a block or a step, what is left.
void others(Bench& bench) {
  Tensor x = values({tokens, width}), dx = values({tokens, width}), y = empty_like(x);
  double bytes = double(x.bytes());
  bench.run("add/residual", {.bytes = 3 * bytes},
            [&] { backend(gpu).binary(binary_id<functors::Add>(), x, dx, y); });
  // Of all projections of a block at once: 3 + 1 + 4 + 1 rows.
  Tensor wide = values({tokens, 9 * width}), sums = empty({1, 9 * width}, f32, gpu);
  bench.run("sum/biases", {.bytes = 9 * bytes}, [&] { backend(gpu).sum(wide, sums, Write::set); });
  auto numbers = [](size_t below) {
    std::vector<int64_t> some(tokens);
    for (size_t i = 0; i < some.size(); ++i) some[i] = int64_t(i * 7919 % below);
    return from_host(some, {tokens}, cpu).to(gpu);
  };
  Tensor ids = numbers(vocab), letters = numbers(96);
  Tensor table = values({vocab, width}), dtable = empty({vocab, width}, f32, gpu);
  bench.run("embedding/forward", {.bytes = 2 * bytes},
            [&] { backend(gpu).embedding(ids, table, 0, y); });
  bench.run("embedding/backward", {.bytes = bytes + 2.0 * double(dtable.bytes())},
            [&] { backend(gpu).embedding_backward(ids, dx, 0, dtable, Write::add); });
  bench.run("embedding/backward of characters", {.bytes = bytes},
            [&] { backend(gpu).embedding_backward(letters, dx, 0, dtable, Write::add); });
  Tensor gradient = values({parameters}, f32), found = full({2}, 0, f64, gpu);
  bench.run("squares/f32", {.bytes = double(gradient.bytes())},
            [&] { backend(gpu).squares(gradient, found); });
}

int run(const std::string& only) {
  Bench bench(only);
  fmt::print(R"({{"device":"{}"}})"
             "\n",
             backend(gpu).name());
  copy(bench);
  products(bench);
  attention(bench);
  norms(bench);
  cross_entropy(bench);
  adamw(bench);
  others(bench);
  return 0;
}

}  // namespace
}  // namespace triax

int main(int argc, char** argv) try {
  return triax::run(argc > 1 ? argv[1] : "");
} catch (const triax::Error& e) {
  fmt::print(stderr, "bench_cuda_kernels: {}\n", e.what());
  return int(e.code());
}
