#pragma once
#include "core/cpu/base.h"

// TRIAX_LEVEL (baseline, avx2, avx512) is given by the build: every file of core/cpu that includes
// this header is compiled once per instruction level, each into a namespace of its own, and
// levels.cpp picks one when the program starts. Inside such a file
//   * everything but the members of Cpu stands in an anonymous namespace;
//   * no inline function or template of another header is left standing as a symbol of its own
//     (tensors are taken by reference and only asked through tensor.h's out-of-line functions; no
//     std:: containers): the linker could pick that copy for a machine without the instructions.
// tests/core/levels_test.sh looks at the objects.

namespace triax::host::TRIAX_LEVEL {

class Cpu : public Base {
 public:
  ~Cpu() override;
  const char* name() const override;

#include "core/shared/overrides.h"
  void accumulate_fixed(const Tensor& x, const FixedPoint& f, const Tensor& sums,
                        Write write) override;
  void squares_fixed(const Tensor& x, const Tensor& out) override;
  void map_tiles(TileMap which, const Windows& w, const Tensor& from, const Tensor& to,
                 Write write) override;
};

}  // namespace triax::host::TRIAX_LEVEL
