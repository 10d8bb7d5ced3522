#pragma once
#include "triax/core/cpu/cpu.h"

// The levels `avx512_bf16` and `amx`: that of AVX-512, but products of bf16 and attention of bf16
// are made in squares of 32 x 32, by dot products of pairs or in AMX tiles (in which f32 is, too).
// Their files follow the rules of cpu.h, are compiled once for each, and stand in the namespace of
// avx512, the class in one that the build gives: TRIAX_SQUARES.
namespace triax::host::TRIAX_LEVEL::TRIAX_SQUARES {

class Tiled final : public Cpu {
 public:
  ~Tiled() override;
  const char* name() const override;

  void matmul(const Matmul& p) override;
  void attention(const Attention& a, const Tensor& y, const Tensor& lse) override;
  void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                          const Qkv& d) override;
};

}  // namespace triax::host::TRIAX_LEVEL::TRIAX_SQUARES
