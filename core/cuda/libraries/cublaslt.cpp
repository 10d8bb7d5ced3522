#include <cublasLt.h>
#include <dlfcn.h>

#include "triax/core/check.h"

// cuBLASLt is loaded when a GPU first multiplies: linked, its 200 MB of relocations and a tenth of
// a second would be the price of every start, also on CPUs. These functions stand in its place.

namespace {

void* library() {
  static void* const loaded = [] {
    for (const char* path : {TRIAX_CUBLASLT_NAME, TRIAX_CUBLASLT_PATH})
      if (void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return handle;
    triax::fail(triax::Exit::config, "cuda: {}; expected the cuBLASLt that triax was built with",
                dlerror());
  }();
  return loaded;
}

/// Returns the library's function that has the name and type of `ours`.
template <auto ours, class... Arguments> auto theirs(const char* name, Arguments... arguments) {
  static const auto function = [&] {
    void* found = dlsym(library(), name);
    triax::check_input(found != nullptr, triax::Exit::config,
                       "cuda: cuBLASLt has no {}; expected version {} or later", name,
                       CUBLAS_VER_MAJOR);
    return reinterpret_cast<decltype(ours)>(found);
  }();
  return function(arguments...);
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return theirs<&cublasLtGetStatusName>(__func__, status);
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return theirs<&cublasLtGetStatusString>(__func__, status);
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return theirs<&cublasLtCreate>(__func__, handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return theirs<&cublasLtDestroy>(__func__, handle);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t stream) {
  return theirs<&cublasLtMatmul>(__func__, handle, product, alpha, a, a_layout, b, b_layout, beta,
                                 c, c_layout, d, d_layout, algorithm, workspace, bytes, stream);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  return theirs<&cublasLtMatmulAlgoGetHeuristic>(__func__, handle, product, a, b, c, d, preference,
                                                 wanted, found, count);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return theirs<&cublasLtMatmulDescCreate>(__func__, product, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return theirs<&cublasLtMatmulDescDestroy>(__func__, product);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return theirs<&cublasLtMatmulDescSetAttribute>(__func__, product, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return theirs<&cublasLtMatmulPreferenceCreate>(__func__, preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return theirs<&cublasLtMatmulPreferenceDestroy>(__func__, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return theirs<&cublasLtMatmulPreferenceSetAttribute>(__func__, preference, attribute, value,
                                                       bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  return theirs<&cublasLtMatrixLayoutCreate>(__func__, layout, type, rows, columns, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return theirs<&cublasLtMatrixLayoutDestroy>(__func__, layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return theirs<&cublasLtMatrixLayoutSetAttribute>(__func__, layout, attribute, value, bytes);
}
