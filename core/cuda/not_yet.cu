#include <string>

#include "core/cuda/cuda.h"
#include "core/error.h"

// What has no kernel yet. Until this file is empty no program accepts `--device cuda`.

namespace triax::cuda::TRIAX_TARGET {
namespace {

[[noreturn]] void refuse(const char* op) {
  throw Error(Exit::config, std::string(op) + ": is not in this build yet on cuda");
}

}  // namespace

void Cuda::matmul(const Matmul&) { refuse("matmul"); }
void Cuda::causal_attention(const Attention&, const Tensor&, const Tensor&) {
  refuse("causal_attention");
}
void Cuda::causal_attention_backward(const Attention&, const Tensor&, const Tensor&, const Tensor&,
                                     const Tensor&) {
  refuse("causal_attention_backward");
}

}  // namespace triax::cuda::TRIAX_TARGET
