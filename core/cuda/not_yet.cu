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

void Cuda::copy(const Tensor&, const Tensor&) { refuse("copy"); }
void Cuda::fill(const Tensor&, double) { refuse("fill"); }
void Cuda::accumulate(const Tensor&, const Tensor&) { refuse("accumulate"); }
void Cuda::index_select(const Tensor&, int, const Tensor&, const Tensor&) {
  refuse("index_select");
}
void Cuda::index_add(const Tensor&, int, const Tensor&, const Tensor&) { refuse("index_add"); }
void Cuda::gather(const Tensor&, const Tensor&, const Tensor&) { refuse("gather"); }
void Cuda::scatter_add(const Tensor&, const Tensor&, const Tensor&) { refuse("scatter_add"); }
void Cuda::unary_backward(Unary, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          Write) {
  refuse("unary_backward");
}
void Cuda::binary(Binary, const Tensor&, const Tensor&, const Tensor&) { refuse("binary"); }
void Cuda::where(const Tensor&, const Tensor&, const Tensor&, const Tensor&) { refuse("where"); }
void Cuda::dropout(const Tensor&, const random::Mask&, const Tensor&) { refuse("dropout"); }
void Cuda::sum(const Tensor&, const Tensor&, Write) { refuse("sum"); }
void Cuda::max(const Tensor&, const Tensor&) { refuse("max"); }
void Cuda::squares(const Tensor&, const Tensor&) { refuse("squares"); }
void Cuda::matmul(const Matmul&) { refuse("matmul"); }
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
void Cuda::causal_attention(const Attention&, const Tensor&, const Tensor&) {
  refuse("causal_attention");
}
void Cuda::causal_attention_backward(const Attention&, const Tensor&, const Tensor&, const Tensor&,
                                     const Tensor&) {
  refuse("causal_attention_backward");
}
void Cuda::adamw(const OptimizerSlot&, const Tensor&, const Tensor&, const AdamWStep&) {
  refuse("adamw");
}
void Cuda::sgd(const OptimizerSlot&, const Tensor&, const SgdStep&) { refuse("sgd"); }

}  // namespace triax::cuda::TRIAX_TARGET
