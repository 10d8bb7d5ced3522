#include "tests/gpu_on_cpu/libraries/product.h"

#include <utility>
#include <vector>

#include "triax/core/functors/gelu.h"

namespace triax::gpu_on_cpu {
namespace {

bool same_size(const Layout& x, uint64_t rows, uint64_t cols, int32_t batches) {
  return x.rows == rows && x.cols == cols && x.batches == batches && x.ld >= int64_t(rows) &&
         x.step >= 0;
}

cublasStatus_t check_types(const Operation& o, const Matrices& x) {
  cudaDataType_t in = x.a.type, out = x.d.type;
  if (x.b.type != in || x.c.type != out) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool wide = o.compute == CUBLAS_COMPUTE_64F && o.scale == CUDA_R_64F && in == CUDA_R_64F;
  bool narrow = o.compute == CUBLAS_COMPUTE_32F && o.scale == CUDA_R_32F &&
                (in == CUDA_R_32F || in == CUDA_R_16F || in == CUDA_R_16BF);
  if (!(wide && out == in) && !(narrow && (out == in || out == CUDA_R_32F)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const Operation& o, const Matrices& x) {
  switch (o.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADB:
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (x.d.type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Of 16 bytes: less, and some algorithms of A100 fail when they run.
  if ((o.has_bias() || o.has_sums()) && (!o.bias || uintptr_t(o.bias) % 16 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((o.has_gelu() || o.has_slope()) &&
      (!o.aux || uintptr_t(o.aux) % 16 != 0 || o.aux_ld % 8 != 0 || o.aux_ld < int64_t(x.m) ||
       x.d.batches > 1))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

double read(const void* from, cudaDataType_t type, int64_t at) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(from)[at];
    case CUDA_R_16F:
      return float(static_cast<const Half*>(from)[at]);
    case CUDA_R_16BF:
      return float(static_cast<const BFloat16*>(from)[at]);
    default:
      return static_cast<const float*>(from)[at];
  }
}
void write(void* to, cudaDataType_t type, int64_t at, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(to)[at] = value;
      return;
    case CUDA_R_16F:
      static_cast<Half*>(to)[at] = Half(float(value));
      return;
    case CUDA_R_16BF:
      static_cast<BFloat16*>(to)[at] = BFloat16(float(value));
      return;
    default:
      static_cast<float*>(to)[at] = float(value);
  }
}

/// op(x) of matrix `batch`, columns of `rows` elements.
template <class A>
std::vector<A> columns(const void* from, const Layout& x, bool transposed, int64_t batch) {
  int64_t rows = int64_t(x.rows), cols = int64_t(x.cols);
  std::vector<A> to(size_t(rows * cols));
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t i = 0; i < rows; ++i)
      to[size_t(transposed ? i * cols + j : j * rows + i)] =
          A(read(from, x.type, batch * x.step + j * x.ld + i));
  return to;
}

template <class A> void multiply_in(const Job& job) {
  const Matrices& x = job.x;
  int64_t m = int64_t(x.m), n = int64_t(x.n), k = int64_t(x.k);
  for (int64_t batch = 0; batch < x.d.batches; ++batch) {
    std::vector<A> a = columns<A>(job.a, x.a, job.o.transa == CUBLAS_OP_T, batch);
    std::vector<A> b = columns<A>(job.b, x.b, job.o.transb == CUBLAS_OP_T, batch);
    for (int64_t j = 0; j < n; ++j) {
      std::vector<A> sums(static_cast<size_t>(m));
      if (job.o.has_sums()) {  // stored, whatever beta is
        A column = 0;
        for (int64_t l = 0; l < k; ++l) column += b[size_t(j * k + l)];
        write(const_cast<void*>(job.o.bias), x.d.type, j, column);
      }
      for (int64_t l = 0; l < k; ++l)
        for (int64_t i = 0; i < m; ++i)
          sums[size_t(i)] += a[size_t(l * m + i)] * b[size_t(j * k + l)];
      for (int64_t i = 0; i < m; ++i) {
        A sum = A(job.alpha) * sums[size_t(i)];
        if (job.beta != 0)
          sum += A(job.beta) * A(read(job.c, x.c.type, batch * x.c.step + j * x.c.ld + i));
        if (job.o.has_bias()) sum += A(read(job.o.bias, x.d.type, i));
        if (job.o.has_gelu()) {
          write(job.o.aux, x.d.type, j * job.o.aux_ld + i, sum);
          sum = functors::Gelu::forward(sum);
        }
        if (job.o.has_slope()) {
          A at = A(read(job.o.aux, x.d.type, j * job.o.aux_ld + i));
          sum *= functors::Gelu::slope(at, at);
        }
        write(job.d, x.d.type, batch * x.d.step + j * x.d.ld + i, sum);
      }
    }
  }
}

}  // namespace

cublasStatus_t check(const Operation& o, Matrices& x) {
  auto known = [](int32_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T; };
  if (!known(o.transa) || !known(o.transb)) return CUBLAS_STATUS_INVALID_VALUE;
  x.m = x.d.rows;
  x.n = x.d.cols;
  x.k = o.transa == CUBLAS_OP_T ? x.a.rows : x.a.cols;
  uint64_t m = x.m, n = x.n, k = x.k;
  if (m == 0 || n == 0 || k == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (o.transa == CUBLAS_OP_T) std::swap(m, k);
  bool fit = same_size(x.a, m, k, x.d.batches);
  m = x.m, k = x.k;
  if (o.transb == CUBLAS_OP_T) std::swap(k, n);
  fit = fit && same_size(x.b, k, n, x.d.batches);
  fit = fit && same_size(x.c, x.m, x.n, x.d.batches) && same_size(x.d, x.m, x.n, x.d.batches);
  if (!fit || x.d.batches < 1 || x.d.batches > 65535) return CUBLAS_STATUS_INVALID_VALUE;
  if (cublasStatus_t s = check_types(o, x)) return s;
  return check_epilogue(o, x);
}

size_t bytes_of(cudaDataType_t t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

void multiply(const Job& job) {
  if (job.o.scale == CUDA_R_64F) multiply_in<double>(job);
  else multiply_in<float>(job);
}

}  // namespace triax::gpu_on_cpu
