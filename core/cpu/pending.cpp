#include "core/cpu/cpu.h"
#include "core/error.h"

// Kernels still to be written.
namespace triax::host::TRIAX_LEVEL {

void Cpu::matmul(const Matmul&) { throw Error(Exit::internal, "matmul: pending"); }
void Cpu::causal_attention(const Attention&, const Tensor&, const Tensor&) {
  throw Error(Exit::internal, "causal_attention: pending");
}
void Cpu::causal_attention_backward(const Attention&, const Tensor&, const Tensor&, const Tensor&,
                                    const Tensor&) {
  throw Error(Exit::internal, "causal_attention_backward: pending");
}

}  // namespace triax::host::TRIAX_LEVEL
