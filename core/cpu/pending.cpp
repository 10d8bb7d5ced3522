#include "core/cpu/cpu.h"

// Kernels still to be written.
namespace triax::host::TRIAX_LEVEL {

void Cpu::matmul(const Matmul&) { throw "matmul: pending"; }
void Cpu::causal_attention(const Attention&, const Tensor&, const Tensor&) {
  throw "causal_attention: pending";
}
void Cpu::causal_attention_backward(const Attention&, const Tensor&, const Tensor&, const Tensor&,
                                    const Tensor&) {
  throw "causal_attention_backward: pending";
}

}  // namespace triax::host::TRIAX_LEVEL
