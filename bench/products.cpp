#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>

#include "bench/shapes.h"
#include "triax/core/shared/team.h"

// fp32 matrix products of triax beside those of another BLAS, alternating in one process:
//   OMP_NUM_THREADS=2 bench_products LIBRARY [ROUNDS]
// LIBRARY exports Fortran's sgemm: libopenblas.so.0, or MKL as PyTorch's libtorch_cpu.so has it.
// Both sides find their operands in the same state of the caches: what the other's last call left.
namespace triax {
namespace {

using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                       const float*, const int*, const float*, const int*, const float*, float*,
                       const int*);

Sgemm load_sgemm(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fmt::print(stderr, "bench_products: {}\n", dlerror()), nullptr;
  for (const char* name : {"sgemm_", "sgemm", "SGEMM"})
    if (void* found = dlsym(handle, name)) return reinterpret_cast<Sgemm>(found);
  return fmt::print(stderr, "bench_products: {} exports no sgemm\n", library), nullptr;
}

/// The same product in columns: c^T = b^T a^T.
void multiply(Sgemm sgemm, const ProductShape& s, const Matmul& p, const Tensor& c) {
  const float one = 1, zero = 0;
  int m = int(s.n), n = int(s.m), k = int(s.k);
  bool left = s.kind == Kind::forward, right = s.kind == Kind::dw;
  int lda = left ? k : m, ldb = right ? n : k;
  sgemm(left ? "T" : "N", right ? "T" : "N", &m, &n, &k, &one,
        static_cast<const float*>(p.b.data()), &lda, static_cast<const float*>(p.a.data()), &ldb,
        &zero, static_cast<float*>(c.data()), &m);
}

double seconds_of(const std::function<void()>& call) {
  auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
  return x[x.size() / 2];
}

/// Prints a row; returns how many times as fast as the peer triax is, NaN for a wrong result.
double compare(Sgemm sgemm, const ProductShape& s, int rounds) {
  Matmul ours = product(s, f32);
  Tensor theirs = full(ours.c.shape(), NAN, f32, cpu);
  auto run_ours = [&] { backend(cpu).matmul(ours); };
  auto run_theirs = [&] { multiply(sgemm, s, ours, theirs); };
  run_ours(), run_theirs();
  const float *x = static_cast<const float*>(ours.c.data()),
              *y = static_cast<const float*>(theirs.data());
  for (int64_t i = 0; i < ours.c.numel(); ++i)
    if (!(std::abs(x[i] - y[i]) <= 1e-2f)) {
      fmt::print(stderr, "bench_products: {} differs from {} at {}\n", x[i], y[i], i);
      return NAN;
    }
  std::vector<double> mine, other, ratio;
  for (int i = 0; i < rounds; ++i) {
    mine.push_back(seconds_of(run_ours));
    other.push_back(seconds_of(run_theirs));
    ratio.push_back(other.back() / mine.back());
  }
  double flop = 2e-9 * double(s.m * s.n * s.k), r = median(ratio);
  fmt::print("{:8} {:5} x {:5} x {:5}  triax {:6.1f}  peer {:6.1f} GFLOP/s  ratio {:.3f}\n",
             kind_names[int(s.kind)], s.m, s.n, s.k, flop / median(mine), flop / median(other), r);
  return r;
}

/// Whether all results were right.
bool compare_block(Sgemm sgemm, const char* model, const std::vector<ProductShape>& shapes,
                   int rounds) {
  double logs = 0;
  for (const ProductShape& s : shapes) logs += std::log(compare(sgemm, s, rounds));
  fmt::print("{}: {} threads, geometric mean of the ratios {:.3f}\n", model, team_threads(),
             std::exp(logs / double(shapes.size())));
  return std::isfinite(logs);
}

}  // namespace
}  // namespace triax

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "usage: bench_products LIBRARY [ROUNDS]\n"), 64;
  auto sgemm = triax::load_sgemm(argv[1]);
  if (!sgemm) return 66;
  int rounds = argc > 2 ? std::stoi(argv[2]) : 41;
  bool right =
      triax::compare_block(sgemm, "mini, 1,024 tokens", triax::block_products(1024, 384), rounds);
  right &= triax::compare_block(sgemm, "124M, 256 tokens", triax::block_products(256, 768), rounds);
  return right ? 0 : 70;
}
