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

void Cuda::softmax_backward(const Tensor&, const Tensor&, const Tensor&) {
  refuse("softmax_backward");
}
void Cuda::log_softmax(const Tensor&, const Tensor&) { refuse("log_softmax"); }
void Cuda::log_softmax_backward(const Tensor&, const Tensor&, const Tensor&) {
  refuse("log_softmax_backward");
}
void Cuda::norm(const Norm&, const Tensor&) { refuse("norm"); }
void Cuda::norm_backward(const Norm&, const Tensor&, const Tensor&, Write) {
  refuse("norm_backward");
}
void Cuda::norm_backward_weights(const Norm&, const Tensor&, const Tensor&, const Tensor&, Write) {
  refuse("norm_backward_weights");
}
void Cuda::embedding(const Tensor&, const Tensor&, int64_t, const Tensor&) { refuse("embedding"); }
void Cuda::embedding_backward(const Tensor&, const Tensor&, int64_t, const Tensor&, Write) {
  refuse("embedding_backward");
}
void Cuda::cross_entropy_stats(const CrossEntropy&, const Tensor&) {
  refuse("cross_entropy_stats");
}
void Cuda::cross_entropy_losses(const CrossEntropy&, const Tensor&, const Tensor&) {
  refuse("cross_entropy_losses");
}
void Cuda::cross_entropy_backward(const CrossEntropy&, const Tensor&, const Tensor&,
                                  const Tensor&) {
  refuse("cross_entropy_backward");
}

}  // namespace triax::cuda::TRIAX_TARGET
