#pragma once
#include "core/cpu/cpu.h"

// The level `amx`: that of AVX-512, but products and attention of bf16 are made in AMX tiles. Its
// files follow the rules of cpu.h and stand in the namespace of avx512.
namespace triax::host::TRIAX_LEVEL {

class Amx final : public Cpu {
 public:
  ~Amx() override;
  const char* name() const override;

  void matmul(const Matmul& p) override;
  void causal_attention(const Attention& a, const Tensor& y, const Tensor& lse) override;
  void causal_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                 const Tensor& dy, const Tensor& dqkv) override;
};

}  // namespace triax::host::TRIAX_LEVEL
