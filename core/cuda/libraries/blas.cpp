#include "triax/core/cuda/libraries/blas.h"

#include <cublasLt.h>

#include <limits>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/cuda/libraries/tuning.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/devices.h"

namespace triax::cuda {

namespace {

void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? Exit::memory : Exit::internal, "cuda: {}: {} ({})",
       call, cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType t) {
  return t == f64 ? CUDA_R_64F : t == f16 ? CUDA_R_16F : t == bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

struct Destroy {
  void operator()(cublasLtHandle_t x) const noexcept { cublasLtDestroy(x); }
  void operator()(cublasLtMatmulDesc_t x) const noexcept { cublasLtMatmulDescDestroy(x); }
  void operator()(cublasLtMatrixLayout_t x) const noexcept { cublasLtMatrixLayoutDestroy(x); }
  void operator()(cublasLtMatmulPreference_t x) const noexcept {
    cublasLtMatmulPreferenceDestroy(x);
  }
};
template <class T> using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy>;
using Handle = Owned<cublasLtHandle_t>;
using Description = Owned<cublasLtMatmulDesc_t>;
using Layout = Owned<cublasLtMatrixLayout_t>;
using Preference = Owned<cublasLtMatmulPreference_t>;

template <class T> void set(const Description& d, cublasLtMatmulDescAttributes_t what, T value) {
  require(cublasLtMatmulDescSetAttribute(d.get(), what, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
}
template <class T> void set(const Layout& l, cublasLtMatrixLayoutAttribute_t what, T value) {
  require(cublasLtMatrixLayoutSetAttribute(l.get(), what, &value, sizeof value),
          "cublasLtMatrixLayoutSetAttribute");
}
template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t what, T value) {
  require(cublasLtMatmulPreferenceSetAttribute(p.get(), what, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
}

/// A [rows, cols] matrix.
Layout layout(const Columns& x, DType dtype, int64_t rows, int64_t cols, int64_t batches) {
  if (x.transposed) std::swap(rows, cols);
  cublasLtMatrixLayout_t made = nullptr;
  require(cublasLtMatrixLayoutCreate(&made, type_of(dtype), uint64_t(rows), uint64_t(cols), x.ld),
          "cublasLtMatrixLayoutCreate");
  Layout l(made);
  if (batches > 1) {
    set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(batches));
    set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.step);
  }
  return l;
}

cublasLtEpilogue_t epilogue_of(Epilogue e) {
  constexpr cublasLtEpilogue_t in_order[] = {
      CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_BIAS,  CUBLASLT_EPILOGUE_GELU_AUX,
      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};
  return in_order[int(e)];
}

Description description(const ColumnProduct& p) {
  bool wide = p.in == f64;
  cublasLtMatmulDesc_t made = nullptr;
  require(cublasLtMatmulDescCreate(&made, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
  Description d(made);
  set(d, CUBLASLT_MATMUL_DESC_TRANSA, int32_t(p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(d, CUBLASLT_MATMUL_DESC_TRANSB, int32_t(p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(epilogue_of(p.epilogue)));
  if (p.aux_ld) set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_ld);
  return d;
}

/// The largest workspace of any algorithm; NVIDIA advises this for H100.
constexpr size_t workspace_bytes = size_t{32} << 20;

struct Choice {
  bool possible = false;
  cublasLtMatmulAlgo_t algorithm = {};
  size_t workspace = 0;
};

/// A product's descriptors, and the algorithm that makes it.
struct Plan {
  explicit Plan(const ColumnProduct& p)
      : call(description(p)),
        a(layout(p.a, p.in, p.m, p.k, p.batches)),
        b(layout(p.b, p.in, p.k, p.n, p.batches)),
        d(layout(p.d, p.out, p.m, p.n, p.batches)) {}
  Description call;
  Layout a, b, d;
  Choice choice = {};
};

void point(const Plan& plan, const Addresses& at) {
  if (at.bias) set(plan.call, CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
  if (at.aux) set(plan.call, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
}

Preference preference(const ColumnProduct& p) {
  cublasLtMatmulPreference_t made = nullptr;
  require(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Preference f(made);
  set(f, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes));
  // Parts of a sum may be kept in f32 alone, not rounded to the result's dtype. Weight gradients
  // are f32: where algorithms are timed, they may also be added up in the result itself.
  bool any = p.timed && p.out == f32;
  set(f, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t(any ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(f, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(p.a.alignment));
  set(f, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(p.b.alignment));
  set(f, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(p.d.alignment));
  set(f, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(p.d.alignment));
  return f;
}

/// Returns the library's best algorithms, first the one it advises; none if it cannot.
std::vector<Choice> candidates(cublasLtHandle_t handle, const Plan& plan, const ColumnProduct& p) {
  constexpr int most = 12;
  cublasLtMatmulHeuristicResult_t found[most];
  Preference wanted = preference(p);
  int count = 0;
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.call.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(), wanted.get(),
      p.timed ? most : 1, found, &count);
  std::vector<Choice> all;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return all;
  require(status, "cublasLtMatmulAlgoGetHeuristic");
  for (const auto& f : std::span(found, size_t(count)))
    if (f.state == CUBLAS_STATUS_SUCCESS) all.push_back({true, f.algo, f.workspaceSize});
  return all;
}

/// The state that one thread has in cuBLASLt on one GPU.
class Blas {
 public:
  explicit Blas(int device) : device_(device) {
    cublasLtHandle_t made = nullptr;
    require(cublasLtCreate(&made), "cublasLtCreate");
    handle_.reset(made);
  }

  bool multiply(const ColumnProduct& p, const Addresses& at, const Context& on) {
    auto found = plans_.find(p);
    if (found != plans_.end()) [[likely]] {
      const Plan& plan = found->second;
      if (plan.choice.possible) require(queue(plan, p, at, on), "cublasLtMatmul");
      return plan.choice.possible;
    }
    Plan plan(p);
    point(plan, at);  // the library looks at their alignment
    static Decisions<std::pair<int, ColumnProduct>, Choice> decisions;
    plan.choice = decisions.of({device_, p}, on.stream(), [&] { return choose(plan, p, at, on); });
    if (plan.choice.possible) {
      cublasStatus_t status = queue(plan, p, at, on);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED) plan.choice.possible = false;  // after all
      else require(status, "cublasLtMatmul");
    }
    bool possible = plan.choice.possible;
    if (plans_.size() >= kept) plans_.clear();
    if (!is_captured(on.stream())) plans_.emplace(p, std::move(plan));
    return possible;
  }

 private:
  static constexpr size_t kept = 4096;

  cublasStatus_t queue(const Plan& plan, const ColumnProduct& p, const Addresses& at,
                       const Context& on) {
    const float one = 1, zero = 0;
    const double one64 = 1, zero64 = 0;
    bool wide = p.in == f64;
    const void* alpha = wide ? static_cast<const void*>(&one64) : &one;
    const void* nothing = wide ? static_cast<const void*>(&zero64) : &zero;
    point(plan, at);
    cublasStatus_t status =
        cublasLtMatmul(handle_.get(), plan.call.get(), alpha, at.a, plan.a.get(), at.b,
                       plan.b.get(), p.add ? alpha : nothing, at.c ? at.c : at.d, plan.d.get(),
                       at.d, plan.d.get(), &plan.choice.algorithm,
                       workspace(plan.choice.workspace, on), plan.choice.workspace, on.stream());
    if (status != CUBLAS_STATUS_SUCCESS) cudaGetLastError();  // or the next launch would report it
    return status;
  }

  /// Returns the fastest algorithm, or the first where nothing is timed.
  Choice choose(Plan& plan, const ColumnProduct& p, Addresses at, const Context& on) {
    std::vector<Choice> all = candidates(handle_.get(), plan, p);
    if (all.empty()) return {};
    if (all.size() == 1 || is_captured(on.stream())) return all[0];
    // A result that is written anew may be written often; one that is added to is left alone.
    Block scratch;
    if (p.add && !at.c) {
      int64_t span = (p.batches - 1) * p.d.step + (p.n - 1) * p.d.ld + p.m;
      try {
        scratch = borrow(on.pool(), size_t(span) * size_of(p.out));
      } catch (const Error& e) {
        if (e.code() == Exit::memory) return all[0];
        throw;
      }
      at.d = scratch.get();
    }
    size_t best = 0;
    float least = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < all.size(); ++i) {
      plan.choice = all[i];
      float ms =
          time_of(on.stream(), [&] { return queue(plan, p, at, on) == CUBLAS_STATUS_SUCCESS; });
      if (ms < least) least = ms, best = i;
    }
    return all[best];
  }

  /// Returns one workspace for all products of the thread, because they run one after another.
  void* workspace(size_t bytes, const Context& on) {
    if (bytes == 0) return nullptr;
    if (!workspace_) workspace_ = borrow(on.pool(), workspace_bytes);
    return workspace_.get();
  }

  int device_;
  Handle handle_;
  Block workspace_;
  std::map<ColumnProduct, Plan> plans_;
};

thread_local std::map<int, Blas> handles;

}  // namespace

bool multiply(int index, const ColumnProduct& p, const Addresses& at) {
  const Context& on = context(index);
  return handles.try_emplace(index, index).first->second.multiply(p, at, on);
}

}  // namespace triax::cuda
