#include "tests/gpu_on_cpu/libraries/blas.h"

#include <cublasLt.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/gpu_on_cpu/device.h"
#include "tests/gpu_on_cpu/libraries/product.h"
#include "tests/gpu_on_cpu/runtime.h"

// A stand-in for cuBLASLt: the functions that core/cuda calls, with plain loops in f32 and f64
// instead of a GPU. It refuses what the library refuses, so that a description that is wrong is
// seen without a GPU.

namespace triax::gpu_on_cpu {
namespace {

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t align[4] = {256, 256, 256, 256};  // of a, b, c, d
};

/// What the stand-in keeps in an algorithm's opaque words.
struct Algorithm {
  uint64_t id, magic, align[4], workspace;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t magic = 0x7472696178;

std::mutex mutex;
BlasCounts counts;
BlasHabits habits;

template <class T> cublasStatus_t store(T& to, const void* from, size_t bytes) {
  if (!from || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// `mutex` must be held.
cublasStatus_t refusal(const Operation& o, Matrices& x) {
  cublasStatus_t status = check(o, x);
  bool refused = o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !habits.knows_epilogues;
  if (status == CUBLAS_STATUS_SUCCESS && refused) status = CUBLAS_STATUS_NOT_SUPPORTED;
  counts.invalid += status == CUBLAS_STATUS_INVALID_VALUE;
  return status;
}

template <class T> T* as(void* opaque) { return static_cast<T*>(opaque); }

/// All descriptions of a call; false if one is missing.
bool gather(Matrices& x, void* a, void* b, void* c, void* d) {
  if (!a || !b || !c || !d) return false;
  x = {*as<Layout>(a), *as<Layout>(b), *as<Layout>(c), *as<Layout>(d), 0, 0, 0};
  return true;
}

/// Is it an algorithm of ours, and are the addresses what it was made for?
bool fits(const Algorithm& algo, const void* const (&address)[4], void* workspace, size_t bytes) {
  if (algo.magic != magic || algo.id > 2) return false;
  for (int i = 0; i < 4; ++i)
    if (!address[i] || uintptr_t(address[i]) % algo.align[i] != 0) return false;
  return algo.workspace == 0 ||
         (workspace && bytes >= algo.workspace && uintptr_t(workspace) % 256 == 0);
}

/// Returns the bytes that a matrix, or a batch of them, spans in memory.
size_t extent(const Layout& x) {
  int64_t last = (x.batches - 1) * x.step + int64_t(x.cols - 1) * x.ld + int64_t(x.rows);
  return size_t(last) * bytes_of(x.type);
}

void wait(double ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

}  // namespace

BlasCounts blas_counts() {
  std::lock_guard guard(mutex);
  return counts;
}
void set_blas_habits(const BlasHabits& now) {
  std::lock_guard guard(mutex);
  habits = now;
}

}  // namespace triax::gpu_on_cpu

using namespace triax::gpu_on_cpu;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "refused by the stand-in"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *to = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) {
  delete reinterpret_cast<Operation*>(x);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t what, const void* from,
                                              size_t bytes) {
  if (!x) return CUBLAS_STATUS_INVALID_VALUE;
  Operation& o = *reinterpret_cast<Operation*>(x);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return store(o.transa, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return store(o.transb, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return store(o.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return store(o.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return store(o.aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return store(o.aux_ld, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;  // not used so far
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *to = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
  delete reinterpret_cast<Layout*>(x);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t x,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void* from, size_t bytes) {
  if (!x) return CUBLAS_STATUS_INVALID_VALUE;
  Layout& l = *reinterpret_cast<Layout*>(x);
  switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return store(l.batches, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return store(l.step, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  *to = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
  delete reinterpret_cast<Preference*>(x);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* from, size_t bytes) {
  if (!x) return CUBLAS_STATUS_INVALID_VALUE;
  Preference& p = *reinterpret_cast<Preference*>(x);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return store(p.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return store(p.reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return store(p.align[0], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return store(p.align[1], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return store(p.align[2], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return store(p.align[3], from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t to[], int* count) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  Matrices x;
  if (!operation || !preference || !to || !count || most <= 0 || !gather(x, a, b, c, d))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard guard(mutex);
  ++counts.heuristics;
  if (cublasStatus_t s = refusal(*reinterpret_cast<Operation*>(operation), x)) return s;
  const Preference& p = *reinterpret_cast<Preference*>(preference);
  counts.reductions = p.reductions;
  const Layout* layouts[] = {&x.a, &x.b, &x.c, &x.d};
  bool packs = true;
  for (int i = 0; i < 4; ++i) {
    if (p.align[i] < bytes_of(layouts[i]->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    packs = packs && p.align[i] >= 16;
  }
  // The first reads whole packs, the last needs a workspace.
  *count = 0;
  for (uint64_t id = packs ? 0 : 1; id < 3 && *count < most; ++id) {
    Algorithm algo{id, magic, {1, 1, 1, 1}, id == 2 ? 4096u : 0u};
    if (algo.workspace > p.workspace) continue;
    for (int i = 0; i < 4; ++i) algo.align[i] = id == 0 ? 16 : bytes_of(layouts[i]->type);
    cublasLtMatmulHeuristicResult_t& r = to[(*count)++];
    r = {};
    std::memcpy(&r.algo, &algo, sizeof algo);
    r.workspaceSize = algo.workspace;
    r.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t adesc,
                              const void* b, cublasLtMatrixLayout_t bdesc, const void* beta,
                              const void* c, cublasLtMatrixLayout_t cdesc, void* d,
                              cublasLtMatrixLayout_t ddesc, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  Job job{};
  if (!operation || !alpha || !beta || !algorithm || !gather(job.x, adesc, bdesc, cdesc, ddesc))
    return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm algo;
  std::memcpy(&algo, algorithm, sizeof algo);
  if (!fits(algo, {a, b, c, d}, workspace, workspace_bytes)) return CUBLAS_STATUS_INVALID_VALUE;
  job.o = *reinterpret_cast<Operation*>(operation);
  bool wide = job.o.scale == CUDA_R_64F;
  auto scalar = [&](const void* x) {
    return wide ? *static_cast<const double*>(x) : *static_cast<const float*>(x);
  };
  job.alpha = scalar(alpha), job.beta = scalar(beta);
  job.a = a, job.b = b, job.c = c, job.d = d;
  double ms = 0;
  {
    std::lock_guard guard(mutex);
    if (cublasStatus_t s = refusal(job.o, job.x)) return s;
    if (int(algo.id) == habits.fails) return CUBLAS_STATUS_NOT_SUPPORTED;
    bool more = job.o.has_gelu() || job.o.has_slope() || job.o.has_sums();
    ms = habits.ms[algo.id] + (more ? habits.more_ms : 0);
    ++counts.products[size_t(algo.id)];
    counts.onto_others += job.beta != 0 && c != d;
    ++counts.epilogues[size_t(job.o.has_bias() + 2 * job.o.has_gelu() + 4 * job.o.has_slope() +
                              5 * job.o.has_sums())];
  }
  touch(stream, "product",
        {{a, extent(job.x.a), false},
         {b, extent(job.x.b), false},
         {c, job.beta == 0 ? 0 : extent(job.x.c), false},
         {d, extent(job.x.d), true},
         {workspace, algo.workspace, true}});
  load(stream, algo.id + 4 * (job.o.epilogue + 1000 * size_t(job.x.d.type)));
  enqueue(stream, [=] {
    if (algo.workspace) std::memset(workspace, 0xff, algo.workspace);
    multiply(job);
    wait(ms);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
