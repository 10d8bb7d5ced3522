#pragma once
#include <cublasLt.h>

#include <cstdint>

// What the stand-in for cuBLASLt (blas.h) keeps of the library's descriptions, what it refuses, and
// the product itself.

namespace triax::gpu_on_cpu {

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0;

  bool has_bias() const { return epilogue & CUBLASLT_EPILOGUE_BIAS; }
  bool has_gelu() const { return epilogue & CUBLASLT_EPILOGUE_GELU; }
  bool has_slope() const { return epilogue == CUBLASLT_EPILOGUE_DGELU; }
  bool has_sums() const { return epilogue == CUBLASLT_EPILOGUE_BGRADB; }
};

struct Layout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batches = 1;
  int64_t step = 0;
};

/// The four matrices of d = alpha a b + beta c.
struct Matrices {
  Layout a, b, c, d;
  uint64_t m, n, k;
};

/// What the library says to such a product; fills in m, n and k.
cublasStatus_t check(const Operation& o, Matrices& x);
size_t bytes_of(cudaDataType_t type);

struct Job {
  Operation o;
  Matrices x;
  double alpha, beta;
  const void *a, *b, *c;
  void* d;
};

/// With sums in f32, or f64 for f64.
void multiply(const Job& job);

}  // namespace triax::gpu_on_cpu
