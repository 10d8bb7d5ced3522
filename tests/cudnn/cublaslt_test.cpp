// cuBLASLt is loaded at the first call of one of its functions, and not before.
#include <cublasLt.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace {

bool is_loaded() {
  std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return handle && dlclose(handle) == 0;
}

TEST(CublasLt, IsLoadedWhenItIsUsed) {
  EXPECT_FALSE(is_loaded());
  EXPECT_STREQ(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_TRUE(is_loaded());
  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 8, 8, 8), CUBLAS_STATUS_SUCCESS);
  uint64_t rows = 0;
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
