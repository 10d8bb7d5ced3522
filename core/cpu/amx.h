#pragma once
#include "core/cpu/cpu.h"

// The level `amx`: that of AVX-512, but products of bf16 and f32 and attention of bf16 are made in
// AMX tiles. Its files follow the rules of cpu.h and stand in the namespace of avx512.
namespace triax::host::TRIAX_LEVEL {

class Amx final : public Cpu {
 public:
  ~Amx() override;
  const char* name() const override;

  void matmul(const Matmul& p) override;
  void attention(const Attention& a, const Tensor& y, const Tensor& lse) override;
  void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                          const Qkv& d) override;
};

}  // namespace triax::host::TRIAX_LEVEL
