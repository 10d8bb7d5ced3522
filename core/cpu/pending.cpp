#include "core/cpu/cpu.h"
#include "core/error.h"

// Kernels still to be written.
namespace triax::host::TRIAX_LEVEL {

void Cpu::index_select(const Tensor&, int, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "index_select: pending");
}
void Cpu::index_add(const Tensor&, int, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "index_add: pending");
}
void Cpu::gather(const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "gather: pending");
}
void Cpu::scatter_add(const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "scatter_add: pending");
}
void Cpu::unary(Unary, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "unary: pending");
}
void Cpu::unary_backward(Unary, const Tensor&, const Tensor&, const Tensor&, const Tensor&, Write) {
  throw Error(Exit::internal, "unary_backward: pending");
}
void Cpu::binary(Binary, const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "binary: pending");
}
void Cpu::where(const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "where: pending");
}
void Cpu::dropout(const Tensor&, const random::Mask&, const Tensor&) {
  throw Error(Exit::internal, "dropout: pending");
}
void Cpu::sum(const Tensor&, const Tensor&, Write) { throw Error(Exit::internal, "sum: pending"); }
void Cpu::max(const Tensor&, const Tensor&) { throw Error(Exit::internal, "max: pending"); }
void Cpu::squares(const Tensor&, const Tensor&) { throw Error(Exit::internal, "squares: pending"); }
void Cpu::softmax(const Tensor&, const Tensor&) { throw Error(Exit::internal, "softmax: pending"); }
void Cpu::softmax_backward(const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "softmax_backward: pending");
}
void Cpu::log_softmax(const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "log_softmax: pending");
}
void Cpu::log_softmax_backward(const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "log_softmax_backward: pending");
}
void Cpu::norm(const Norm&, const Tensor&) { throw Error(Exit::internal, "norm: pending"); }
void Cpu::norm_backward(const Norm&, const Tensor&, const Tensor&, Write) {
  throw Error(Exit::internal, "norm_backward: pending");
}
void Cpu::norm_backward_weights(const Norm&, const Tensor&, const Tensor&, const Tensor&, Write) {
  throw Error(Exit::internal, "norm_backward_weights: pending");
}
void Cpu::embedding(const Tensor&, const Tensor&, int64_t, const Tensor&) {
  throw Error(Exit::internal, "embedding: pending");
}
void Cpu::embedding_backward(const Tensor&, const Tensor&, int64_t, const Tensor&, Write) {
  throw Error(Exit::internal, "embedding_backward: pending");
}
void Cpu::cross_entropy_stats(const CrossEntropy&, const Tensor&) {
  throw Error(Exit::internal, "cross_entropy_stats: pending");
}
void Cpu::cross_entropy_losses(const CrossEntropy&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "cross_entropy_losses: pending");
}
void Cpu::cross_entropy_backward(const CrossEntropy&, const Tensor&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "cross_entropy_backward: pending");
}
void Cpu::adamw(const OptimizerSlot&, const Tensor&, const Tensor&, const AdamWStep&) {
  throw Error(Exit::internal, "adamw: pending");
}
void Cpu::sgd(const OptimizerSlot&, const Tensor&, const SgdStep&) {
  throw Error(Exit::internal, "sgd: pending");
}

}  // namespace triax::host::TRIAX_LEVEL
